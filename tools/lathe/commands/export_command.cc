#include "tools/lathe/commands/export_command.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "libs/common/config/option_set.h"
#include "libs/common/errors.h"
#include "libs/common/status_macros.h"
#include "tools/lathe/commands/find_checkpoint.h"
#include "tools/lathe/data_dir_options.h"
#include "tools/lathe/model_folder.h"
#include "tools/lathe/program.h"

namespace lathe::cli {
namespace {

absl::Status Become(std::vector<std::string> arguments) {
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  execv(pointers[0], pointers.data());
  return absl::InternalError(
      absl::StrCat("cannot execute ", arguments[0], ": ", std::strerror(errno)));
}

}  // namespace

absl::Status ExportCommand(int argc, const char* const* argv) {
  DataDirOptions data;
  bool merged = false;
  std::string model_argument;
  std::string out;
  std::string checkpoint_name;
  OptionSet options("lathe export",
                    "Writes a base model with a checkpoint merged into it, as a folder that "
                    "Transformers loads.");
  AddDataDirOptions(options, data);
  options.Add(&merged, "export.merged", false,
              "merges the checkpoint into the base; the checkpoint's directory itself is a PEFT "
              "folder");
  options.Add(&model_argument, "export.model", "",
              "folder of the checkpoint's base model, or a model id in the local cache",
              {.required = true});
  options.Add(&out, "export.out", "", "folder to write; must not exist", {.required = true});
  options.AddPositional(&checkpoint_name, "CHECKPOINT",
                        "tinker:// path of a save, or the directory of a checkpoint");
  std::vector<const char*> words(argv, argv + argc);
  // A bare --merged would take the following CHECKPOINT as its value.
  for (const char*& word : words) {
    if (std::string_view(word) == "--merged") word = "--merged=true";
  }
  RETURN_IF_ERROR(options.Parse(argc, words.data()));
  if (!merged) {
    return WithDetail(
        absl::InvalidArgumentError("--merged is missing: nothing else is exported; a checkpoint's "
                                   "directory is a PEFT folder as it is"),
        "usage", "merged");
  }
  ASSIGN_OR_RETURN(const ModelFolder model, ResolveModel(model_argument, DefaultHubCache()));
  ASSIGN_OR_RETURN(const std::filesystem::path checkpoint,
                   FindCheckpoint(checkpoint_name, OpenDataDir(data).path() / "checkpoints"));
  ASSIGN_OR_RETURN(std::string program, FindProgram(ProgramDir(), "lathe-export"));
  return Become({std::move(program), "--model", model.path.string(), "--checkpoint",
                 checkpoint.string(), "--out", out});
}

}  // namespace lathe::cli
