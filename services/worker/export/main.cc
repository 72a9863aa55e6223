// lathe-export: writes a checkpoint as a whole model folder. `lathe export` runs it.
#include <cstdio>
#include <exception>
#include <string>

#include "absl/status/status.h"
#include "libs/common/config/option_set.h"
#include "services/worker/export/merged_model.h"

namespace lathe::worker {
namespace {

int ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 0;
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kResourceExhausted:
      return kExitCannotCreate;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kFailedPrecondition:
      return kExitConfiguration;
    default:
      return kExitSoftware;
  }
}

// Turns torch's exceptions about memory or files into a status.
absl::Status Export(const std::string& model, const std::string& checkpoint,
                    const std::string& out) {
  try {
    return ExportMerged(model, checkpoint, out);
  } catch (const std::exception& error) {
    return absl::InternalError(error.what());
  }
}

}  // namespace
}  // namespace lathe::worker

int main(int argc, char** argv) {
  std::string model;
  std::string checkpoint;
  std::string out;
  lathe::OptionSet options("lathe-export", "Writes a base model with a checkpoint merged into it.");
  options.Add(&model, "merge.model", "", "folder of the base model", {.required = true});
  options.Add(&checkpoint, "merge.checkpoint", "", "directory of the checkpoint",
              {.required = true});
  options.Add(&out, "merge.out", "", "folder to write; must not exist", {.required = true});
  options.ParseOrExit(argc, argv);
  const absl::Status status = lathe::worker::Export(model, checkpoint, out);
  if (!status.ok()) {
    std::fprintf(stderr, "lathe-export: %s\n", std::string(status.message()).c_str());
  }
  return lathe::worker::ExitCodeOf(status);
}
