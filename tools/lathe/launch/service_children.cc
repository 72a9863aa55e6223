#include "tools/lathe/launch/service_children.h"

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "libs/common/status_macros.h"
#include "tools/lathe/program.h"

namespace lathe::cli {
namespace {

absl::StatusOr<ChildSpec> ServiceSpec(const char* name, const DataDir& dir,
                                      const std::string& config_path,
                                      std::vector<std::string> arguments) {
  ASSIGN_OR_RETURN(std::string program, FindProgram(ProgramDir(), absl::StrCat("lathe-", name)));
  ChildSpec child{.name = name};
  child.arguments = {std::move(program), "--data-dir", dir.path().string()};
  child.arguments.insert(child.arguments.end(), arguments.begin(), arguments.end());
  if (!config_path.empty()) {
    child.arguments.insert(child.arguments.end(), {"--config", config_path});
  }
  child.log_path = dir.logs() / absl::StrCat(name, ".log");
  return child;
}

bool IsGiven(const char* variable) { return std::getenv(variable) != nullptr; }

}  // namespace

void AddServiceOptions(OptionSet& set, ServiceOptions& options) {
  set.Add(&options.drain_delay, "gateway.drain_delay", absl::ZeroDuration(), "",
          {.borrowed = true});
  set.Add(&options.drain_timeout, "gateway.drain_timeout", absl::Seconds(10), "",
          {.borrowed = true});
}

absl::StatusOr<std::vector<ChildSpec>> ServiceChildren(const DataDir& dir,
                                                       const std::string& config_path,
                                                       const std::string& worker_secret_file) {
  std::vector<ChildSpec> children;
  ASSIGN_OR_RETURN(children.emplace_back(), ServiceSpec(kServiceEngine, dir, config_path,
                                                        {"--run-dir", dir.socket_dir().string()}));
  const bool has_secret =
      IsGiven("LATHE_ENGINE__WORKER_SECRET") || IsGiven("LATHE_ENGINE__WORKER_SECRET_FILE");
  if (!worker_secret_file.empty() && !has_secret) {
    children.back().overrides = {
        absl::StrCat("LATHE_ENGINE__WORKER_SECRET_FILE=", worker_secret_file)};
  }
  ASSIGN_OR_RETURN(children.emplace_back(), ServiceSpec(kServiceGateway, dir, config_path,
                                                        {"--engine", dir.SocketAddress("engine")}));
  return children;
}

}  // namespace lathe::cli
