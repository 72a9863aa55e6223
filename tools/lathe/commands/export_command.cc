#include "tools/lathe/commands/export_command.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "libs/common/config/option_set.h"
#include "libs/common/errors.h"
#include "libs/common/object_store/checkpoint_cache.h"
#include "libs/common/object_store/checkpoint_objects.h"
#include "libs/common/object_store/storage_options.h"
#include "libs/common/status_macros.h"
#include "tools/lathe/commands/find_checkpoint.h"
#include "tools/lathe/data_dir_options.h"
#include "tools/lathe/model_folder.h"
#include "tools/lathe/program.h"

namespace lathe::cli {
namespace {

constexpr absl::Duration kStoragePatience = absl::Seconds(60);

absl::Status Become(std::vector<std::string> arguments) {
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  execv(pointers[0], pointers.data());
  return absl::InternalError(
      absl::StrCat("cannot execute ", arguments[0], ": ", std::strerror(errno)));
}

// Returns the folder of a checkpoint in a store of objects, which is fetched into the cache. The
// process that this one becomes keeps it there.
absl::StatusOr<std::filesystem::path> FetchCheckpoint(const std::string& tinker_path,
                                                      const StorageOptions& storage,
                                                      const std::filesystem::path& data_dir) {
  ASSIGN_OR_RETURN(std::shared_ptr<ObjectStore> objects,
                   OpenObjectStore(storage, kStoragePatience));
  const auto checkpoints = std::make_shared<CheckpointObjects>(std::move(objects));
  ASSIGN_OR_RETURN(const std::string dir, FindStoredCheckpoint(tinker_path, *checkpoints));
  const std::filesystem::path root =
      storage.cache_dir.empty() ? data_dir / "cache" : std::filesystem::path(storage.cache_dir);
  std::filesystem::create_directories(root);
  CheckpointCache cache(checkpoints, root, storage.cache_mib << 20);
  ASSIGN_OR_RETURN(CheckpointCache::Pin pin, cache.Open(dir));
  return pin.KeepAcrossExec();
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
  StorageOptions storage;
  AddStorageOptions(options, storage, /*has_cache=*/true);
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
  const std::filesystem::path data_dir = OpenDataDir(data).path();
  const bool is_stored = storage.has_objects() && absl::StartsWith(checkpoint_name, "tinker://");
  ASSIGN_OR_RETURN(const std::filesystem::path checkpoint,
                   is_stored ? FetchCheckpoint(checkpoint_name, storage, data_dir)
                             : FindCheckpoint(checkpoint_name, data_dir / "checkpoints"));
  ASSIGN_OR_RETURN(std::string program, FindProgram(ProgramDir(), "lathe-export"));
  return Become({std::move(program), "--model", model.path.string(), "--checkpoint",
                 checkpoint.string(), "--out", out});
}

}  // namespace lathe::cli
