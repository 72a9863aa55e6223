#include "tools/lathe/commands/doctor_command.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/types/span.h"
#include "libs/common/config/option_set.h"
#include "libs/common/errors.h"
#include "libs/common/json/json.h"
#include "libs/common/status_macros.h"
#include "libs/common/time/clock.h"
#include "tools/lathe/doctor/check.h"
#include "tools/lathe/launch/up_options.h"
#include "tools/lathe/program.h"
#include "tools/lathe/run_program.h"

namespace lathe::cli {
namespace {

constexpr char kDescription[] =
    "Looks for what would stop Lathe on this machine, and says how to mend it. What follows -- "
    "goes\nto the role's program, as when it is started.\n  lathe doctor -- --model "
    "./Qwen3-0.6B --listen 0.0.0.0:8080\n  lathe doctor --role worker --config lathe.yaml\n"
    "Exit code 0: nothing found; 1: warnings; 2: errors.";

constexpr absl::Duration kOptionsLimit = absl::Minutes(1);
constexpr absl::Duration kWaitPause = absl::Seconds(1);

struct DoctorOptions {
  std::string role;
  std::string format;
  bool is_offline = false;
  bool is_deep = false;
  absl::Duration wait;
  std::string config_path;
  std::vector<std::string> arguments;
};

// A check and one thing that it found.
struct Row {
  const DoctorCheck* check = nullptr;
  Finding finding;
};

struct DoctorReport {
  std::vector<Row> rows;
  int Count(CheckState state) const {
    return static_cast<int>(std::count_if(
        rows.begin(), rows.end(), [&](const Row& row) { return row.finding.state == state; }));
  }
};

Role RoleOf(std::string_view name) {
  if (name == "engine") return Role::kEngine;
  if (name == "gateway") return Role::kGateway;
  if (name == "worker") return Role::kWorker;
  return name == "ranks" ? Role::kRanks : Role::kUp;
}

const char* Word(CheckState state) {
  switch (state) {
    case CheckState::kOk:
      return "ok";
    case CheckState::kWarning:
      return "warning";
    case CheckState::kError:
      return "error";
    case CheckState::kSkipped:
      return "skipped";
  }
  return "";
}

absl::StatusOr<DoctorOptions> ParseDoctorOptions(int argc, const char* const* argv) {
  DoctorOptions doctor;
  const char* const* const end = argv + argc;
  const char* const* const dashes =
      std::find_if(argv, end, [](const char* each) { return std::string_view(each) == "--"; });
  if (dashes != end) doctor.arguments.assign(dashes + 1, end);
  OptionSet options("lathe doctor", kDescription);
  options.Add(&doctor.role, "doctor.role", "up",
              "what will run here: up (everything), engine, gateway, worker or ranks",
              {.choices = {"up", "engine", "gateway", "worker", "ranks"}});
  options.Add(&doctor.format, "doctor.format", "table", "table or json",
              {.choices = {"table", "json"}});
  options.Add(&doctor.is_offline, "doctor.offline", false, "ask no other machine");
  options.Add(&doctor.is_deep, "doctor.deep", false, "read the whole database");
  options.Add(&doctor.wait, "doctor.wait", absl::ZeroDuration(),
              "look again until there is no error, for this long");
  RETURN_IF_ERROR(options.Parse(static_cast<int>(dashes - argv), argv));
  doctor.config_path = options.config_path();
  return doctor;
}

// Reads lines `key = value  # origin`.
std::map<std::string, std::string> ReadOptions(absl::string_view text) {
  std::map<std::string, std::string> options;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(line, absl::MaxSplits(" = ", 1));
    options[std::string(parts.first)] =
        std::string(parts.second.substr(0, parts.second.rfind("  # ")));
  }
  return options;
}

// Returns the store of `lathe up` with its password, which --show-config masks.
std::string StoreOfUp(const CheckInput& input) {
  std::vector<const char*> arguments = {"up"};
  for (size_t i = 2; i < input.command.size(); ++i) arguments.push_back(input.command[i].c_str());
  // The model is required there, and not here.
  if (input.Option("up.model").empty()) arguments.insert(arguments.end(), {"--model", "none"});
  const absl::StatusOr<UpOptions> options =
      ParseUpOptions(static_cast<int>(arguments.size()), arguments.data());
  return options.ok() ? options->store : input.Option("up.store");
}

// Asks a program for the errors and the values of its options. Values that are known stay.
absl::Status AddOptions(std::vector<std::string> command, CheckInput& input) {
  command.push_back("--check-config");
  ASSIGN_OR_RETURN(const ProgramRun valid, RunProgram(command, kOptionsLimit));
  // Two programs have the same complaint about a part of the file that both read.
  if (valid.exit_code != 0 && valid.output != input.option_errors) {
    input.option_errors += valid.output;
  }
  command.back() = "--show-config";
  ASSIGN_OR_RETURN(const ProgramRun shown, RunProgram(command, kOptionsLimit));
  if (shown.exit_code == 0) input.options.merge(ReadOptions(shown.output));
  return absl::OkStatus();
}

// Returns the command of a program with the doctor's file of options and `arguments`.
std::vector<std::string> CommandOf(const DoctorOptions& doctor, std::vector<std::string> command,
                                   absl::Span<const std::string> arguments) {
  if (!doctor.config_path.empty()) {
    command.insert(command.end(), {"--config", doctor.config_path});
  }
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

// Asks the role's program for its options, and for `ranks` the workers that it starts.
absl::StatusOr<CheckInput> ReadInput(const DoctorOptions& doctor) {
  CheckInput input{
      .role = RoleOf(doctor.role), .is_offline = doctor.is_offline, .is_deep = doctor.is_deep};
  const bool is_up = input.role == Role::kUp;
  const bool is_verb = is_up || input.role == Role::kRanks;
  ASSIGN_OR_RETURN(
      const std::string program,
      FindProgram(ProgramDir(), is_verb ? "lathe" : absl::StrCat("lathe-", doctor.role)));
  // The words after another "--" go to the workers. A question behind it would start them.
  absl::Span<const std::string> arguments = doctor.arguments;
  const size_t dashes =
      static_cast<size_t>(std::find(arguments.begin(), arguments.end(), "--") - arguments.begin());
  const bool has_workers = input.role == Role::kRanks;
  input.command = {program};
  if (is_verb) input.command.push_back(doctor.role);
  input.command = CommandOf(doctor, std::move(input.command),
                            has_workers ? arguments.first(dashes) : arguments);
  RETURN_IF_ERROR(AddOptions(input.command, input));
  if (is_up && !input.options.empty()) input.options["up.store"] = StoreOfUp(input);
  if (has_workers) {
    ASSIGN_OR_RETURN(const std::string worker, FindProgram(ProgramDir(), "lathe-worker"));
    arguments.remove_prefix(std::min(arguments.size(), dashes + 1));
    RETURN_IF_ERROR(AddOptions(CommandOf(doctor, {worker}, arguments), input));
  }
  return input;
}

DoctorReport Look(const CheckInput& input) {
  DoctorReport report;
  const auto run = [&](const std::vector<DoctorCheck>& checks) {
    for (const DoctorCheck& check : checks) {
      const bool is_for_role =
          check.roles.empty() || std::count(check.roles.begin(), check.roles.end(), input.role) > 0;
      if (!is_for_role || (check.asks_other_machines && input.is_offline)) continue;
      for (Finding& finding : check.run(input)) {
        report.rows.push_back({.check = &check, .finding = std::move(finding)});
      }
    }
  };
  run(OptionChecks());
  run(HostChecks());
  // The others look at options.
  if (input.options.empty()) return report;
  run(FileChecks());
  run(StoreChecks());
  run(StorageChecks());
  run(NetworkChecks());
  run(ModelChecks());
  run(GpuChecks());
  run(ServiceChecks());
  return report;
}

void PrintTable(const DoctorReport& report) {
  for (const Row& row : report.rows) {
    const Finding& finding = row.finding;
    std::printf("%-8s %-20s %s\n", Word(finding.state), std::string(row.check->name).c_str(),
                finding.found.c_str());
    if (finding.state != CheckState::kWarning && finding.state != CheckState::kError) continue;
    if (!finding.expected.empty()) std::printf("%30s%s\n", "expected: ", finding.expected.c_str());
    std::printf("%30s%s\n", "because: ", std::string(row.check->why).c_str());
    if (!finding.remedy.empty()) std::printf("%30s%s\n", "fix: ", finding.remedy.c_str());
  }
}

void PrintJson(const DoctorReport& report) {
  Json checks = Json::array();
  for (const Row& row : report.rows) {
    checks.push_back({{"name", row.check->name},
                      {"state", Word(row.finding.state)},
                      {"found", row.finding.found},
                      {"expected", row.finding.expected},
                      {"why", row.check->why},
                      {"remedy", row.finding.remedy}});
  }
  std::printf("%s\n", ToJsonText({{"checks", std::move(checks)},
                                  {"errors", report.Count(CheckState::kError)},
                                  {"warnings", report.Count(CheckState::kWarning)}})
                          .c_str());
}

}  // namespace

absl::Status DoctorCommand(int argc, const char* const* argv) {
  ASSIGN_OR_RETURN(const DoctorOptions doctor, ParseDoctorOptions(argc, argv));
  const absl::Time deadline = SteadyNow() + doctor.wait;
  ASSIGN_OR_RETURN(CheckInput input, ReadInput(doctor));
  DoctorReport report = Look(input);
  while (report.Count(CheckState::kError) > 0 && SteadyNow() + kWaitPause < deadline) {
    absl::SleepFor(kWaitPause);
    ASSIGN_OR_RETURN(input, ReadInput(doctor));
    report = Look(input);
  }
  doctor.format == "json" ? PrintJson(report) : PrintTable(report);
  const int errors = report.Count(CheckState::kError);
  const int warnings = report.Count(CheckState::kWarning);
  if (errors == 0 && warnings == 0) return absl::OkStatus();
  return WithDetail(absl::FailedPreconditionError(
                        absl::StrCat(errors, errors == 1 ? " error, " : " errors, ", warnings,
                                     warnings == 1 ? " warning" : " warnings")),
                    errors > 0 ? "doctor_errors" : "doctor_warnings");
}

}  // namespace lathe::cli
