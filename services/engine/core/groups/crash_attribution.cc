#include "services/engine/core/groups/crash_attribution.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/engine/core/groups/group_state.h"
#include "services/engine/core/groups/ranks.h"
#include "services/engine/core/models/model_end.h"
#include "services/engine/core/models/recovery_need.h"
#include "services/engine/core/requests/requests.h"
#include "services/engine/core/state/errors.h"

namespace lathe::engine {
namespace {

void FailRequest(State& s, Request& request, const std::string& how) {
  const bool creates = request.row.op_class == OpClass::kModel;
  Model* const model = Find(s.models, request.plan->model_id);
  Fail(s, request,
       Internal(absl::StrFormat("the worker died %d times while it ran this request alone (%s)",
                                request.num_crashes_alone, how)));
  if (creates) FailModel(s, *model, Internal("the worker died whenever it created the model"));
}

// The requests that may have caused a crash. If a request ran alone, it is the one, even if the
// worker did not report its start. Otherwise all requests at the worker are possible, as the start
// of the last one may not have been reported. If no start was reported while a recovery ran, the
// recovery is the more likely cause.
std::set<std::string> RequestsAtCrash(State& s, const Group& group) {
  if (!group.alone.empty()) return {group.alone};
  if (group.started.empty() && IsRecovering(s, group)) return {};
  std::set<std::string> ids = group.at_worker;
  ids.insert(group.started.begin(), group.started.end());
  return ids;
}

// Attributes a crash that was reported late. A request that runs again meanwhile continues; the
// next crash, if any, counts against it.
void AttributeCrashToRun(State& s, Group& group, const Group::LostRun& run,
                         const std::string& how) {
  group.last_crash = how;
  for (const std::string& id : run.request_ids) {
    Request* const request = Find(s.requests, id);
    if (request == nullptr || !request->live()) continue;
    if (id != run.alone) {
      request->is_quarantined = true;
      s.unsent_request_ids.insert(id);  // takes it out of the shared queue
      continue;
    }
    ++request->num_crashes_alone;
    const bool is_over = request->num_crashes_alone >= s.options.max_crashes_alone;
    if (is_over && !IsAtWorker(s, *request)) FailRequest(s, *request, how);
  }
}

}  // namespace

void OnWorkerStarted(State& s, const WorkerStarted& event) {
  Group* const group = Find(s.groups, event.group);
  if (group == nullptr || !group->attached || group->row.epoch != event.epoch) return;
  for (const std::string& id : event.request_ids) {
    const Request* const request = Find(s.requests, id);
    if (request != nullptr && request->live()) group->started.insert(id);
  }
}

void AttributeCrash(State& s, Group& group, const std::string& how) {
  const std::string alone = group.alone;
  for (const std::string& id : RequestsAtCrash(s, group)) {
    Request* const request = Find(s.requests, id);
    if (request == nullptr || !request->live()) continue;
    if (id != alone) {
      request->is_quarantined = true;
    } else if (++request->num_crashes_alone >= s.options.max_crashes_alone) {
      FailRequest(s, *request, how);
    }
  }
}

void RecordLostRun(State& s, Group& group, LossCause cause) {
  constexpr size_t kMaxRuns = 8;
  const bool lost_each_other = cause == LossCause::kPeerGone;
  const bool is_attributed =
      !group.is_supervised || (cause != LossCause::kUnknown && !lost_each_other);
  // The exit of an earlier process with the same pid will not be reported any more.
  std::erase_if(group.lost_runs, [&](const Group::LostRun& run) {
    return std::any_of(run.processes.begin(), run.processes.end(),
                       [&](const auto& process) { return group.processes.count(process) > 0; });
  });
  Group::LostRun lost{.processes = group.processes,
                      .is_attributed = is_attributed,
                      .is_counted = lost_each_other,
                      .was_loaded = group.loaded,
                      .alone = group.alone,
                      .request_ids = RequestsAtCrash(s, group)};
  for (const Rank& rank : group.ranks) {
    if (const WorkerExited* const exit = ExitOfMember(group, rank)) {
      lost.processes.erase({exit->rank, exit->pid});
    }
  }
  if (!lost.processes.empty()) group.lost_runs.push_back(std::move(lost));
  if (group.lost_runs.size() > kMaxRuns) group.lost_runs.pop_front();
  if (is_attributed) return;
  // The report of its last allowed crash came while the request ran again.
  Request* const alone = Find(s.requests, group.alone);
  const bool is_over =
      alone != nullptr && alone->live() && alone->num_crashes_alone >= s.options.max_crashes_alone;
  if (is_over) FailRequest(s, *alone, group.last_crash);
}

bool AttributeExit(State& s, Group& group, const WorkerExited& exited) {
  const auto it =
      std::find_if(group.lost_runs.begin(), group.lost_runs.end(), [&](const Group::LostRun& run) {
        return run.processes.count({exited.rank, exited.pid}) > 0;
      });
  if (it == group.lost_runs.end()) return false;
  it->processes.erase({exited.rank, exited.pid});
  // A copy, as the run changes and may be erased before its last use.
  const Group::LostRun run = *it;  // NOLINT(performance-unnecessary-copy-initialization)
  const bool is_death = IsDeath(exited.cause);
  const bool lost_peer = exited.cause == LossCause::kPeerGone && !run.is_counted && !run.was_ended;
  it->is_attributed = run.is_attributed || is_death;
  it->is_counted = run.is_counted || lost_peer;
  it->was_ended = run.was_ended || exited.cause == LossCause::kEnded;
  if (run.processes.empty()) group.lost_runs.erase(it);
  if (run.is_attributed) return true;
  const std::string how = NameRank(group, exited.rank, exited.how);
  if (IsByItself(exited.cause)) AttributeCrashToRun(s, group, run, how);
  if (lost_peer) {
    RecordLostPeer(s, group, how, run.was_loaded);
  } else if (!run.is_counted) {
    RecordDeath(s, group, exited.cause, how, run.was_loaded);
  } else if (is_death) {
    ExplainDeath(s, group, exited.cause, how, run.was_loaded);
  }
  return true;
}

}  // namespace lathe::engine
