#include "tools/lathe/commands/runs_command.h"

#include <unistd.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "libs/common/config/option_set.h"
#include "libs/common/status_macros.h"
#include "tools/lathe/api_options.h"
#include "tools/lathe/exit_code.h"
#include "tools/lathe/runs/run_list.h"
#include "tools/lathe/runs/run_reader.h"
#include "tools/lathe/terminal/screen.h"

namespace lathe::cli {
namespace {

constexpr int kDefaultRuns = 20;
constexpr char kAnyState[] = "any";

struct RunsOptions {
  ApiOptions api;
  std::string project;
  std::string filter;
  std::string state;
  int limit = kDefaultRuns;
  bool is_json = false;
};

// Returns what scripts get: the objects of the API, and what is derived from them.
Json JsonOf(const ListedRun& run) {
  return {{"training_run", run.run},
          {"session", run.session},
          {"state", run.state()},
          {"last_step", run.last_step ? Json(*run.last_step) : Json(nullptr)}};
}

void PrintRunJson(const Json& json) { std::printf("%s\n", AsciiJsonText(json).c_str()); }

void PrintLines(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) std::printf("%s\n", line.c_str());
}

void PrintRuns(const RunsOptions& options, const std::vector<ListedRun>& runs,
               const RunPage& page) {
  if (options.is_json) {
    Json list = Json::array();
    for (const ListedRun& run : runs) list.push_back(JsonOf(run));
    PrintRunJson({{"runs", std::move(list)}, {"total_count", page.total_count}});
    return;
  }
  PrintLines(RunTable(runs, absl::Now(), SizeOf(STDOUT_FILENO).columns));
  const auto num_read = static_cast<int64_t>(page.runs.size());
  if (page.total_count > num_read && static_cast<int>(runs.size()) < options.limit) {
    std::fprintf(stderr, "only the newest %lld of %lld runs were looked at\n",
                 static_cast<long long>(num_read), static_cast<long long>(page.total_count));
  }
}

absl::Status ListRuns(const RunsOptions& options) {
  ASSIGN_OR_RETURN(ApiClient api, OpenApi(options.api));
  const bool is_filtered = !options.filter.empty() || !options.state.empty();
  ASSIGN_OR_RETURN(const RunPage page,
                   ReadRuns(api, options.project, is_filtered ? kMaxRunsRead : options.limit));
  std::vector<ListedRun> chosen;
  for (const ListedRun& run : page.runs) {
    if (static_cast<int>(chosen.size()) == options.limit) break;
    if (IsChosen(run, options.filter, options.state)) chosen.push_back(run);
  }
  const absl::Status steps = ReadLastSteps(api, chosen);
  // The list is worth having without the steps that the server did not tell.
  PrintRuns(options, chosen, page);
  return steps;
}

absl::Status List(int argc, const char* const* argv) {
  RunsOptions options;
  OptionSet set("lathe runs",
                "Lists the newest training runs of a key's tenant. `lathe runs show RUN` tells all "
                "about one.");
  AddApiOptions(set, options.api);
  set.Add(&options.project, "runs.project", "", "only runs of this project");
  set.Add(&options.filter, "runs.filter", "",
          "words that the id, name, project or base model must have");
  std::vector<std::string> states = RunStates();
  states.insert(states.begin(), kAnyState);
  set.Add(&options.state, "runs.state", kAnyState,
          absl::StrCat("only runs of this state: ", absl::StrJoin(states, ", ")),
          {.choices = std::move(states)});
  set.Add(&options.limit, "runs.limit", kDefaultRuns,
          absl::StrCat("runs to show at most, 1 to ", kMaxRunsRead));
  set.Add(&options.is_json, "runs.json", false, "print JSON");
  RETURN_IF_ERROR(set.Parse(argc, argv));
  if (options.limit < 1 || options.limit > kMaxRunsRead) {
    return UsageError(absl::StrCat("limit is ", options.limit, ", expected 1 to ", kMaxRunsRead));
  }
  if (options.state == kAnyState) options.state.clear();
  if (!options.project.empty()) RETURN_IF_ERROR(CheckId("project", options.project));
  return ListRuns(options);
}

absl::Status Show(int argc, const char* const* argv) {
  RunsOptions options;
  std::string id;
  OptionSet set("lathe runs show", "Tells all about one training run.");
  AddApiOptions(set, options.api);
  set.Add(&options.is_json, "runs.json", false, "print JSON");
  set.AddPositional(&id, "RUN", "as `lathe runs` shows it");
  RETURN_IF_ERROR(set.Parse(argc, argv));
  RETURN_IF_ERROR(CheckId("RUN", id));
  ASSIGN_OR_RETURN(ApiClient api, OpenApi(options.api));
  ASSIGN_OR_RETURN(const ListedRun run, ReadRun(api, id));
  options.is_json ? PrintRunJson(JsonOf(run)) : PrintLines(RunFacts(run, absl::Now()));
  return absl::OkStatus();
}

}  // namespace

absl::Status RunsCommand(int argc, const char* const* argv) {
  const std::string_view action = argc > 1 ? argv[1] : "";
  return action == "show" ? Show(argc - 1, argv + 1) : List(argc, argv);
}

}  // namespace lathe::cli
