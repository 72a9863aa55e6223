#include "tools/lathe/commands/config_command.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "libs/common/config/option_set.h"
#include "libs/common/errors.h"
#include "libs/common/status_macros.h"
#include "tools/lathe/program.h"

namespace lathe::cli {
namespace {

constexpr char kUsage[] = "usage: lathe config check FILE";

// Command lines that together know every section of a file but `keys`, whose commands differ.
const std::vector<std::vector<std::string>>& Programs() {
  static const auto& programs = *new std::vector<std::vector<std::string>>{
      {"lathe-engine"},
      {"lathe-gateway"},
      {"lathe-worker"},
      {"lathe", "up"},
      {"lathe", "ranks"},
      {"lathe", "status"},
      {"lathe", "move"},
      {"lathe", "export"},
      {"lathe", "probe"},
      {"lathe", "certs", "init"},
      {"lathe", "tenants", "set-quota"},
  };
  return programs;
}

// Runs a command line without its standard output. Returns its exit code.
absl::StatusOr<int> RunQuietly(std::vector<std::string> arguments) {
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, pointers[0], &files, nullptr, pointers.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) {
    return absl::InternalError(absl::StrCat("cannot run ", arguments[0], ": ", strerror(error)));
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : kExitSoftware;
}

absl::Status Check(const std::string& path) {
  std::vector<std::string> valid;
  std::vector<std::string> refused;
  for (const std::vector<std::string>& program : Programs()) {
    const std::string name = absl::StrJoin(program, " ");
    const absl::StatusOr<std::string> found = FindProgram(ProgramDir(), program[0]);
    if (!found.ok()) {
      std::fprintf(stderr, "%s is not installed here, its section was not checked\n", name.c_str());
      continue;
    }
    std::vector<std::string> arguments = program;
    arguments[0] = *found;
    arguments.insert(arguments.end(), {"--config", path, "--check-config"});
    ASSIGN_OR_RETURN(const int exit_code, RunQuietly(std::move(arguments)));
    (exit_code == 0 ? valid : refused).push_back(name);
  }
  if (!refused.empty()) {
    return WithDetail(absl::InvalidArgumentError(
                          absl::StrCat(path, " is refused by ", absl::StrJoin(refused, ", "))),
                      "configuration");
  }
  std::printf("%s is valid for %s\n", path.c_str(), absl::StrJoin(valid, ", ").c_str());
  return absl::OkStatus();
}

}  // namespace

absl::Status ConfigCommand(int argc, const char* const* argv) {
  const std::string verb = argc > 1 ? argv[1] : "";
  if (verb != "check") return WithDetail(absl::InvalidArgumentError(kUsage), "usage");
  std::string path;
  OptionSet options("lathe config check",
                    "Says whether every Lathe program accepts a configuration file.");
  options.AddPositional(&path, "FILE", "YAML file, as for --config");
  RETURN_IF_ERROR(options.Parse(argc - 1, argv + 1));
  return Check(path);
}

}  // namespace lathe::cli
