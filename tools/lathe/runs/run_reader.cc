#include "tools/lathe/runs/run_reader.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "libs/common/status_macros.h"
#include "libs/common/time/clock.h"

namespace lathe::cli {
namespace {

constexpr int kRunsPerCall = 200;
constexpr int kSessionsPerCall = 200;
constexpr int kMaxSessionCalls = 8;
constexpr std::size_t kMaxStepCalls = 50;
constexpr int kRequestsForStep = 50;

using Sessions = std::map<std::string, Json>;

// Reads the newest sessions, of the project if one is given, until those of all runs are there.
absl::Status ReadSessions(ApiClient& api, const std::string& project, std::set<std::string> missing,
                          Sessions& sessions) {
  Json question = {{"limit", kSessionsPerCall}};
  if (missing.size() == 1) question["session_id"] = *missing.begin();
  if (!project.empty()) question["project_ids"] = Json::array({project});
  for (int call = 0; call < kMaxSessionCalls && !missing.empty(); ++call) {
    ASSIGN_OR_RETURN(const Json answer,
                     api.Post("sessions/search", question, SteadyNow() + kApiCallTimeout));
    const Json& list = Member(answer, "sessions");
    if (!list.is_array()) break;
    for (const Json& session : list) {
      const std::string id = TextMember(session, "session_id");
      if (missing.erase(id) > 0) sessions[id] = session;
    }
    question["cursor"] = Member(answer, "next_cursor");
    if (question["cursor"].is_null()) break;
  }
  return absl::OkStatus();
}

absl::Status AddSessions(ApiClient& api, const std::string& project, std::vector<ListedRun>& runs) {
  std::set<std::string> ids;
  for (const ListedRun& run : runs) ids.insert(SessionOf(run.id()));
  Sessions sessions;
  RETURN_IF_ERROR(ReadSessions(api, project, std::move(ids), sessions));
  for (ListedRun& run : runs) {
    const auto found = sessions.find(SessionOf(run.id()));
    if (found != sessions.end()) run.session = found->second;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RunPage> ReadRuns(ApiClient& api, const std::string& project, int limit) {
  RunPage page;
  limit = std::min(limit, kMaxRunsRead);
  while (static_cast<int>(page.runs.size()) < limit) {
    const int count = std::min(kRunsPerCall, limit - static_cast<int>(page.runs.size()));
    std::string path = absl::StrCat("training_runs?limit=", count, "&offset=", page.runs.size());
    if (!project.empty()) absl::StrAppend(&path, "&project_id=", project);
    ASSIGN_OR_RETURN(const Json answer, api.Get(path, SteadyNow() + kApiCallTimeout));
    const Json& list = Member(answer, "training_runs");
    page.total_count = JsonInt(Member(answer, "cursor"), "total_count").value_or(0);
    if (!list.is_array() || list.empty()) break;
    for (const Json& run : list) page.runs.push_back({.run = run});
    if (static_cast<int>(list.size()) < count) break;
  }
  RETURN_IF_ERROR(AddSessions(api, project, page.runs));
  return page;
}

absl::StatusOr<ListedRun> ReadRun(ApiClient& api, const std::string& id) {
  std::vector<ListedRun> runs(1);
  ASSIGN_OR_RETURN(runs[0].run,
                   api.Get(absl::StrCat("training_runs/", id), SteadyNow() + kApiCallTimeout));
  RETURN_IF_ERROR(AddSessions(api, /*project=*/"", runs));
  RETURN_IF_ERROR(ReadLastSteps(api, runs));
  return std::move(runs[0]);
}

absl::StatusOr<Json> ReadRequests(ApiClient& api, const std::string& run_id, int limit) {
  return api.Get(absl::StrCat("training_runs/", run_id, "/requests?limit=", limit),
                 SteadyNow() + kApiCallTimeout);
}

absl::Status ReadLastSteps(ApiClient& api, std::vector<ListedRun>& runs) {
  for (std::size_t index = 0; index < std::min(runs.size(), kMaxStepCalls); ++index) {
    const absl::StatusOr<Json> requests = ReadRequests(api, runs[index].id(), kRequestsForStep);
    // The run was deleted meanwhile.
    if (absl::IsNotFound(requests.status())) continue;
    RETURN_IF_ERROR(requests.status());
    runs[index].last_step = LastStep(*requests);
  }
  return absl::OkStatus();
}

}  // namespace lathe::cli
