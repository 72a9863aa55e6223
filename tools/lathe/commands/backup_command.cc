#include "tools/lathe/commands/backup_command.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "libs/common/config/option_set.h"
#include "libs/common/status_macros.h"
#include "tools/lathe/data_dir_options.h"
#include "tools/lathe/program.h"

namespace lathe::cli {
namespace {

constexpr char kBackup[] =
    "Writes the database and the files that it names into a folder, as of one moment, while the "
    "service runs.\nExit code 1: files that the database names are missing or damaged; the rest is "
    "in the backup. Then keep older backups.";
constexpr char kRestore[] =
    "Fills an empty data directory, and an empty database, from a folder that lathe backup wrote.";

// Becomes the engine with `task`. The store's password must not be in the arguments, which every
// user of the machine can read.
absl::Status BecomeEngine(const DataDirOptions& data, const std::string& store,
                          const std::string& config, const std::string& task) {
  ASSIGN_OR_RETURN(const std::string engine, FindProgram(ProgramDir(), "lathe-engine"));
  std::vector<std::string> arguments = {engine, "--data-dir", OpenDataDir(data).path().string(),
                                        task};
  if (!config.empty()) arguments.insert(arguments.end(), {"--config", config});
  std::vector<std::string> overrides;
  if (!store.empty()) {
    overrides = {absl::StrCat("LATHE_ENGINE__STORE=", store), "LATHE_ENGINE__STORE_FILE="};
  }
  std::vector<std::string> environment = EnvironmentWith(overrides);
  const std::vector<char*> argv = PointersTo(arguments);
  const std::vector<char*> envp = PointersTo(environment);
  execve(engine.c_str(), argv.data(), envp.data());
  return absl::InternalError(absl::StrCat("cannot execute ", engine, ": ", std::strerror(errno)));
}

// Parses the options and becomes the engine. `folder`: the flag that names the backup.
absl::Status Run(int argc, const char* const* argv, const char* verb, const char* description,
                 const char* folder, const char* folder_help) {
  DataDirOptions data;
  std::string store;
  std::string dir;
  OptionSet options(absl::StrCat("lathe ", verb), description);
  AddDataDirOptions(options, data);
  options.Add(&store, absl::StrCat(verb, ".store"), "",
              "sqlite:PATH or postgres://…; empty: LATHE_ENGINE__STORE, engine.store of --config, "
              "else sqlite:DATA_DIR/lathe.db",
              {.may_hold_password = true});
  // The file of `lathe up` names it there.
  std::string store_of_up;
  options.Add(&store_of_up, "up.store", "", "", {.borrowed = true});
  options.Add(&dir, absl::StrCat(verb, ".", folder), "", folder_help, {.required = true});
  RETURN_IF_ERROR(options.Parse(argc, argv));
  return BecomeEngine(
      data, store.empty() ? store_of_up : store, options.config_path(),
      absl::StrCat("--", verb, "=", std::filesystem::absolute(dir).lexically_normal().string()));
}

}  // namespace

absl::Status BackupCommand(int argc, const char* const* argv) {
  return Run(argc, argv, "backup", kBackup, "out", "folder to write; missing or empty");
}

absl::Status RestoreCommand(int argc, const char* const* argv) {
  return Run(argc, argv, "restore", kRestore, "from", "folder of the backup");
}

}  // namespace lathe::cli
