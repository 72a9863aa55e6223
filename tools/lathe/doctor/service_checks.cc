// Checks of the options, the store, GPUs and the running service.
#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "libs/common/device/visible_device.h"
#include "libs/common/errors.h"
#include "libs/common/version.h"
#include "tools/lathe/admin_client.h"
#include "tools/lathe/doctor/check.h"
#include "tools/lathe/program.h"
#include "tools/lathe/run_program.h"

namespace lathe::cli {
namespace {

constexpr absl::Duration kStoreLimit = absl::Seconds(30);
constexpr absl::Duration kDeepStoreLimit = absl::Minutes(30);
constexpr absl::Duration kSoon = absl::Hours(14 * 24);
// Oldest driver that runs programs of CUDA 13.
constexpr int kOldestDriver = 580;

std::vector<Finding> CheckOptions(const CheckInput& input) {
  if (input.option_errors.empty()) {
    return {{.found = absl::StrCat(input.options.size(), " options are valid")}};
  }
  std::vector<Finding> findings;
  for (const absl::string_view line :
       absl::StrSplit(input.option_errors, '\n', absl::SkipWhitespace())) {
    findings.push_back({.state = CheckState::kError,
                        .found = std::string(line),
                        .remedy = "correct the file, the variable or the flag that it names"});
  }
  return findings;
}

// `text`: a line about the database, and a line for each warning.
std::vector<Finding> StoreFindings(absl::string_view text) {
  std::vector<Finding> findings;
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipWhitespace())) {
    if (absl::ConsumePrefix(&line, "warning: ")) {
      findings.push_back({.state = CheckState::kWarning,
                          .found = std::string(line),
                          .remedy = "docs/database.md says what the engine needs"});
    } else {
      findings.push_back({.found = std::string(line)});
    }
  }
  return findings;
}

std::vector<Finding> CheckStore(const CheckInput& input) {
  std::vector<std::string> command = input.command;
  std::vector<std::string> variables;
  if (input.role == Role::kUp) {
    const absl::StatusOr<std::string> engine = FindProgram(ProgramDir(), "lathe-engine");
    if (!engine.ok()) {
      return {{.state = CheckState::kError,
               .found = std::string(engine.status().message()),
               .remedy = "install Lathe again"}};
    }
    command = {*engine, "--data-dir", input.Data().path()};
    // Its password must not be in the arguments, which every user of the machine can read.
    if (!input.Store().empty()) variables = {absl::StrCat("LATHE_ENGINE__STORE=", input.Store())};
  }
  command.push_back(input.is_deep ? "--check-store=deep" : "--check-store=quick");
  const absl::StatusOr<ProgramRun> run =
      RunProgram(command, input.is_deep ? kDeepStoreLimit : kStoreLimit, variables);
  if (!run.ok()) {
    return {{.state = CheckState::kError,
             .found = std::string(run.status().message()),
             .expected = "an answer of the database",
             .remedy = "look at the database's log, and at firewalls between"}};
  }
  const std::string text(absl::StripSuffix(run->output, "\n"));
  if (run->exit_code == 0) return StoreFindings(text);
  return {{.state = CheckState::kError,
           .found = text,
           .expected = "a database that this release can use",
           .remedy = "docs/database.md says what the engine needs"}};
}

std::vector<Finding> CheckDevices(const CheckInput& input) {
  const std::string device = input.Option(absl::StrCat(input.WorkerSection(), ".device"));
  const int count = NumVisibleDevices(input.root / "dev");
  if (device == "cuda" && count == 0) {
    return {{.state = CheckState::kError,
             .found = "device is cuda, and no GPU is visible",
             .expected = "at least one",
             .remedy = "pass GPUs to the container (Docker: --gpus all), install the driver, or "
                       "use --device cpu"}};
  }
  if (count == 0) return {{.state = CheckState::kSkipped, .found = "no GPU is visible"}};
  if (const absl::Status status = CheckVisibleDevices(input.NumRanks(), device); !status.ok()) {
    return {{.state = CheckState::kError,
             .found = std::string(status.message()),
             .remedy = "make the mesh smaller, or free GPUs"}};
  }
  return {{.found = absl::StrCat(count, " GPUs are visible")}};
}

std::vector<Finding> CheckDriver(const CheckInput& input) {
  std::ifstream file(input.root / "proc/driver/nvidia/version");
  std::string line;
  std::getline(file, line);
  int version = 0;
  for (const absl::string_view word : absl::StrSplit(line, ' ', absl::SkipWhitespace())) {
    const std::vector<absl::string_view> parts = absl::StrSplit(word, '.');
    if (parts.size() >= 2 && absl::SimpleAtoi(parts[0], &version)) break;
  }
  if (version == 0) return {{.state = CheckState::kSkipped, .found = "no NVIDIA driver"}};
  const std::string found = absl::StrCat("NVIDIA driver ", version);
  const std::string device = input.Option(absl::StrCat(input.WorkerSection(), ".device"));
  if (version >= kOldestDriver || device == "cpu") return {{.found = found}};
  return {{.state = device == "cuda" ? CheckState::kError : CheckState::kWarning,
           .found = found,
           .expected = absl::StrCat(kOldestDriver, " or later"),
           .remedy = "install a newer driver on the host"}};
}

std::vector<Finding> NotRunning() {
  return {{.state = CheckState::kSkipped, .found = "no engine answers in this data directory"}};
}

std::vector<Finding> CheckGroups(const CheckInput& input) {
  const auto status = AdminClient(input.Data()).GetStatus();
  if (!status.ok()) return NotRunning();
  std::vector<Finding> findings;
  if (status->version() != kVersion) {
    findings.push_back({.state = CheckState::kWarning,
                        .found = absl::StrCat("the engine is of release ", status->version()),
                        .expected = absl::StrCat(std::string(kVersion), ", as this program"),
                        .remedy = "finish the upgrade (docs/upgrades.md)"});
  }
  for (const v1::GroupStatus& group : status->groups()) {
    std::string found = absl::StrCat("group ", group.group(), " is ", group.state());
    if (!group.reason().empty()) absl::StrAppend(&found, ": ", group.reason());
    if (group.state() == "ready" || group.state() == "loading") {
      findings.push_back({.found = std::move(found)});
    } else {
      findings.push_back(
          {.state = group.state() == "refused" ? CheckState::kError : CheckState::kWarning,
           .found = std::move(found),
           .expected = "ready",
           .remedy = "look at the worker's log (docs/operations.md)"});
    }
  }
  if (findings.empty()) {
    return {{.state = CheckState::kWarning,
             .found = "the engine has no worker",
             .expected = "at least one",
             .remedy = "start one, and compare its worker.engine and secret_file"}};
  }
  return findings;
}

std::vector<Finding> CheckKeys(const CheckInput& input) {
  const auto list = AdminClient(input.Data()).ListKeys();
  if (!list.ok()) return NotRunning();
  std::vector<Finding> findings;
  const absl::Time now = absl::Now();
  for (const v1::ApiKeyInfo& key : list->keys()) {
    if (key.revoked() || !key.has_expires_at()) continue;
    const absl::Time end = absl::FromUnixSeconds(key.expires_at().seconds());
    if (end < now || end > now + kSoon) continue;
    findings.push_back({.state = CheckState::kWarning,
                        .found = absl::StrCat("key ", key.key_id(), " of ", key.tenant(),
                                              " ends at ", absl::FormatTime(end)),
                        .expected = "more than 14 days",
                        .remedy = absl::StrCat("lathe keys rotate ", key.key_id())});
  }
  if (!findings.empty()) return findings;
  return {{.found = absl::StrCat(list->keys_size(), " keys, none ends within 14 days")}};
}

}  // namespace

const std::vector<DoctorCheck>& OptionChecks() {
  static const auto& checks = *new std::vector<DoctorCheck>{
      {.name = "options",
       .why = "a program with wrong options does not start",
       .run = CheckOptions},
  };
  return checks;
}

const std::vector<DoctorCheck>& StoreChecks() {
  static const auto& checks = *new std::vector<DoctorCheck>{
      {.name = "store",
       .why = "the engine keeps all state there",
       .roles = {Role::kUp, Role::kEngine},
       .run = CheckStore},
  };
  return checks;
}

const std::vector<DoctorCheck>& GpuChecks() {
  static const auto& checks = *new std::vector<DoctorCheck>{
      {.name = "gpu.devices",
       .why = "each rank needs a GPU of its own",
       .roles = {Role::kUp, Role::kWorker, Role::kRanks},
       .run = CheckDevices},
      {.name = "gpu.driver",
       .why = "an old driver does not run programs of CUDA 13",
       .roles = {Role::kUp, Role::kWorker, Role::kRanks},
       .run = CheckDriver},
  };
  return checks;
}

const std::vector<DoctorCheck>& ServiceChecks() {
  static const auto& checks = *new std::vector<DoctorCheck>{
      {.name = "service.groups",
       .why = "requests wait for a group that works",
       .roles = {Role::kUp, Role::kEngine},
       .run = CheckGroups},
      {.name = "service.keys",
       .why = "a key that ends stops its users",
       .roles = {Role::kUp, Role::kEngine},
       .run = CheckKeys},
  };
  return checks;
}

}  // namespace lathe::cli
