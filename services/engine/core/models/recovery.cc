#include "services/engine/core/models/recovery.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/engine/core/models/model_end.h"
#include "services/engine/core/models/model_history.h"
#include "services/engine/core/models/operations.h"
#include "services/engine/core/models/recovery_need.h"
#include "services/engine/core/samplers/sample_queue.h"
#include "services/engine/core/samplers/samplers.h"
#include "services/engine/core/samplers/transfer_reports.h"
#include "services/engine/core/samplers/versions.h"
#include "services/engine/core/state/model_facts.h"

namespace lathe::engine {
namespace {

using Kind = ReplayOp::Kind;

// Number of recoveries that one call starts. The others start when one of these is done, or with
// the next Tick.
constexpr int64_t kMaxStarts = 64;

// Makes an id whose answer the recovery waits for.
std::string NewReplayId(State& s, Model& model, int64_t seq, const std::string& request_id) {
  std::string id = ReplayId(s, model.row.model_id, request_id);
  model.recovery->running[id] = seq;
  s.replays[id] = model.row.model_id;
  return id;
}

std::string RequestIdOf(const std::string& replay_id) {
  const size_t begin = replay_id.rfind(':') + 1;
  return replay_id.substr(begin, replay_id.find('@', begin) - begin);
}

// Handles the answer of a recovery that is over. The version that it made may have been dropped.
void OnLateReplay(State& s, Group& group, const std::string& replay_id) {
  const std::string model_id = ModelOfReplay(replay_id);
  const size_t version = replay_id.rfind('@');
  if (model_id.empty() || version == std::string::npos) return;
  const std::string version_id = model_id + replay_id.substr(version);
  if (s.versions.count(version_id) > 0) return;
  s.fx.Send(group.row.group, group.row.epoch, SendDropVersion{version_id});
}

// The possible starts of a recovery, those with the least work first.
std::deque<Recovery::Start> StartsOf(const State& s, const Model& model) {
  std::vector<Recovery::Start> starts;
  for (auto it = model.snapshots.rbegin(); it != model.snapshots.rend(); ++it) {
    starts.push_back({PointOf(*it), it->snapshot_id, std::nullopt});
  }
  const std::vector<int64_t> loads = model.log.Loads();
  for (const int64_t seq : loads) {
    starts.push_back({{seq, {}}, "", std::get<LoggedLoad>(*model.log.Find(seq))});
  }
  if (model.created_from) {
    starts.push_back({{}, "", model.created_from});
  } else if (!IsTrimmed(s, model) && model.created_as) {
    starts.push_back({});
  }
  std::stable_sort(starts.begin(), starts.end(), [](const auto& a, const auto& b) {
    return a.point.applied_seq > b.point.applied_seq;
  });
  return {starts.begin(), starts.end()};
}

void SendStart(State& s, Model& model, const Recovery::Start& start) {
  const Group& group = s.groups.at(model.row.group);
  const std::string& model_id = model.row.model_id;
  const auto send = [&](WorkerCommand command) {
    s.fx.Send(group.row.group, group.row.epoch, std::move(command));
  };
  // The worker may have another state of the model, or the remains of an earlier start.
  send(SendDropAdapter{NewReplayId(s, model, 0, "drop"), model_id});
  if (!start.snapshot_id.empty()) {
    send(SendRestoreAdapter{NewReplayId(s, model, 0, "restore"), model_id, start.snapshot_id});
  } else if (start.load) {
    send(SendLoadAdapter{NewReplayId(s, model, 0, start.load->request_id), model_id,
                         start.point.applied_seq, start.load->dir, start.load->with_optimizer});
  } else {
    send(SendCreateAdapter{NewReplayId(s, model, 0, "create"), model_id, *model.created_as});
  }
}

// Delays are 0, then 1, 2, 4… seconds, at most half a minute.
int64_t BackOff(int64_t num_failures) {
  constexpr int64_t kLongest = 30 * kSecond;
  if (num_failures == 0) return 0;
  return num_failures > 5 ? kLongest : kSecond << (num_failures - 1);
}

// Returns true if the error is due to the start's bytes or shape, so a retry cannot succeed.
bool IsOfTheStart(const ErrorInfo& error) {
  return error.status == absl::StatusCode::kDataLoss ||
         error.status == absl::StatusCode::kNotFound ||
         error.status == absl::StatusCode::kInvalidArgument ||
         error.status == absl::StatusCode::kFailedPrecondition;
}

void GiveUp(State& s, Model& model) {
  const std::string why = model.recovery->failures;
  s.fx.After(RecordRecovery{.model_id = model.row.model_id,
                            .outcome = RecordRecovery::Outcome::kLost,
                            .detail = why,
                            .num_replayed = model.recovery->num_replayed,
                            .nanoseconds = s.now - model.recovery->began_at});
  LoseModel(s, model, why);
}

void RecordFailedStart(State& s, Model& model, const Recovery::Start& start,
                       absl::string_view why) {
  const std::string name = !start.snapshot_id.empty() ? "snapshot " + start.snapshot_id
                           : start.load               ? "checkpoint " + start.load->dir
                                                      : "its creation";
  const std::string detail = absl::StrCat(name, ": ", why);
  absl::StrAppend(&model.recovery->failures, model.recovery->failures.empty() ? "" : "; ", detail);
  s.fx.After(RecordRecovery{.model_id = model.row.model_id,
                            .outcome = RecordRecovery::Outcome::kFellBack,
                            .detail = detail});
}

// Tries the remaining starts in order.
void TryNextStart(State& s, Model& model) {
  Recovery& recovery = *model.recovery;
  while (!recovery.starts.empty()) {
    const Recovery::Start start = recovery.starts.front();
    const auto publications = PublicationsToRepeat(s, model, start.point);
    absl::StatusOr<std::vector<ReplayOp>> path =
        absl::DataLossError("sampler versions before it are not on disk");
    if (publications) {
      path = model.log.Path(start.point, PointOf(model), *publications, s.options.batch_tokens);
    }
    if (path.ok()) {
      recovery.program.assign(path->begin(), path->end());
      recovery.point = start.point;
      return SendStart(s, model, start);
    }
    RecordFailedStart(s, model, start, path.status().message());
    recovery.starts.pop_front();
  }
  GiveUp(s, model);
}

void Finish(State& s, Model& model) {
  s.fx.After(RecordRecovery{.model_id = model.row.model_id,
                            .outcome = model.recovery->resumes
                                           ? RecordRecovery::Outcome::kResumed
                                           : RecordRecovery::Outcome::kRecovered,
                            .num_replayed = model.recovery->num_replayed,
                            .nanoseconds = s.now - model.recovery->began_at});
  model.recovery.reset();
  TrimHistory(s, model);
  const Group* const group = Find(s.groups, model.row.group);
  for (const std::string& id : UnnamedSamplersOf(s, model.row.model_id)) {
    Sampler& sampler = s.samplers.at(id);
    if (group != nullptr && !CanBeSampled(s, *group, sampler)) LoseVersion(s, sampler);
  }
  model.num_recoveries_cut = 0;
  model.snapshot_wanted = true;
  s.follow_ups.models.insert(model.row.model_id);
  ResumeModel(s, model);
}

void SendGradients(State& s, Model& model, const std::vector<int64_t>& seqs) {
  const Group& group = s.groups.at(model.row.group);
  SendTrainBatch batch;
  for (const int64_t seq : seqs) {
    const auto& gradient = std::get<LoggedGradient>(*model.log.Find(seq));
    batch.items.push_back({NewReplayId(s, model, seq, gradient.request_id), gradient.body_id, seq});
    std::vector<int64_t>& window = model.recovery->point.window;
    window.insert(std::upper_bound(window.begin(), window.end(), seq), seq);
  }
  s.fx.Send(group.row.group, group.row.epoch, std::move(batch));
}

void SendOne(State& s, Model& model, int64_t seq) {
  const Group& group = s.groups.at(model.row.group);
  const std::string& model_id = model.row.model_id;
  ModelPoint& point = model.recovery->point;
  const LogEntry& entry = *model.log.Find(seq);
  WorkerCommand command;
  if (const auto* const step = std::get_if<LoggedStep>(&entry)) {
    command = SendOptimStep{NewReplayId(s, model, seq, step->request_id),
                            model_id,
                            seq,
                            point.applied_seq,
                            step->window,
                            step->adam_params};
    point = {seq, {}};
  } else if (const auto* const load = std::get_if<LoggedLoad>(&entry)) {
    command = SendLoadAdapter{NewReplayId(s, model, seq, load->request_id), model_id, seq,
                              load->dir, load->with_optimizer};
    point = {seq, {}};
  } else {
    const auto& publication = std::get<LoggedPublication>(entry);
    const std::string version = publication.version_id.substr(model_id.size());
    command = SendPublishVersion{NewReplayId(s, model, seq, publication.request_id + version),
                                 model_id, seq, publication.version_id, publication.is_inflight};
  }
  s.fx.Send(group.row.group, group.row.epoch, std::move(command));
}

// Sends the next operation after the worker has completed the last one.
void CompleteRecovery(State& s, Model& model) {
  Recovery& recovery = *model.recovery;
  while (recovery.running.empty() && !recovery.program.empty()) {
    const ReplayOp op = std::move(recovery.program.front());
    recovery.program.pop_front();
    if (op.kind == Kind::kClear) {
      const Group& group = s.groups.at(model.row.group);
      recovery.point.window.clear();
      s.fx.Send(group.row.group, group.row.epoch, SendClearGradient{model.row.model_id});
    } else if (op.kind == Kind::kGradients) {
      SendGradients(s, model, op.seqs);
    } else {
      SendOne(s, model, op.seqs.front());
    }
  }
  if (recovery.running.empty()) Finish(s, model);
}

// The next Tick after the pause begins the recovery anew.
void TryLater(State& s, Recovery& recovery, const ErrorInfo& error, int64_t num_failures) {
  recovery.last_error = error.message;
  recovery.not_before = s.now + BackOff(num_failures);
  recovery.started = false;
}

void OnReplayFailed(State& s, Model& model, const ErrorInfo& error) {
  constexpr int64_t kMaxTries = 8;  // about two minutes
  Recovery& recovery = *model.recovery;
  ForgetRunning(s, recovery);
  // An object store that is away says nothing about the start, however long it is away.
  const bool is_away = error.status == absl::StatusCode::kUnavailable;
  recovery.num_unavailable = is_away ? recovery.num_unavailable + 1 : 0;
  if (is_away) return TryLater(s, recovery, error, recovery.num_unavailable);
  if (!IsOfTheStart(error)) ++recovery.num_failures;
  // Lack of memory never uses up the tries: models may leave, and a larger worker may attach.
  if (error.status == absl::StatusCode::kResourceExhausted) {
    recovery.num_failures = std::min(recovery.num_failures, kMaxTries / 2);
  }
  if (!IsOfTheStart(error) && recovery.num_failures < kMaxTries) {
    return TryLater(s, recovery, error, recovery.num_failures);
  }
  RecordFailedStart(s, model, recovery.starts.front(), error.message);
  recovery.starts.pop_front();
  TryNextStart(s, model);
}

void RecordPublished(State& s, Group& group, const Model& model, int64_t seq) {
  const LogEntry* const entry = model.log.Find(seq);
  if (entry == nullptr || !std::holds_alternative<LoggedPublication>(*entry)) return;
  const std::string& version_id = std::get<LoggedPublication>(*entry).version_id;
  if (s.versions.count(version_id) == 0) {  // dropped since the program was made
    s.fx.Send(group.row.group, group.row.epoch, SendDropVersion{version_id});
    return;
  }
  group.version_ids.insert(version_id);
  QueueSamplesOf(s, {version_id});
}

// Acknowledges earlier answers of the model's started requests, as these requests run again. A late
// or repeated answer must not count.
void ForgetAnswers(State& s, const Group& group, const Model& model) {
  SendAck ack;
  for (const Request* const request : BegunRequests(s, model)) {
    ack.request_ids.push_back(request->row.request_id);
  }
  if (!ack.request_ids.empty()) s.fx.Send(group.row.group, group.row.epoch, std::move(ack));
}

}  // namespace

void StartRecoveries(State& s, Group& group) {
  if (!group.can_train()) return;
  s.follow_ups.groups.insert(group.row.group);  // quarantined requests wait for recoveries
  if (!group.alone.empty()) return;             // and recoveries for the one that runs alone
  ModelIndex& index = IndexOf(s);
  const auto place = index.at.find({group.row.group, group.row.base_model});
  if (place == index.at.end()) return;
  const ModelsAt& here = place->second;
  const bool any_was_cut = here.num_cut > 0;
  bool one_runs = here.num_started > 0;
  if (any_was_cut && one_runs) return;
  std::vector<std::pair<int64_t, std::string>> waiting;  // those never cut come first
  Budget looks(s.options.max_swept);
  for (const auto& [not_before, num_cut, id] : here.waiting) {
    if (not_before > s.now || !looks.Take()) break;
    const Model& model = std::as_const(s.models).at(id);
    // Recoveries that may end the worker again, and resumed models, come after the quarantined
    // requests. Otherwise these requests, and all that wait for them, might never run.
    const bool is_urgent = num_cut == 0 && !model.recovery->resumes;
    if (!is_urgent && !group.quarantined.empty()) continue;
    if (HasWorkAtWorker(s, model)) continue;
    waiting.emplace_back(num_cut, id);
  }
  std::sort(waiting.begin(), waiting.end());
  Budget starts(kMaxStarts);
  for (const auto& [num_cut, id] : waiting) {
    if (!starts.Take()) return;
    // One of them may end the worker. Run one at a time so that the others succeed.
    if (any_was_cut && one_runs) return;
    Model& model = s.models.at(id);
    ForgetAnswers(s, group, model);
    model.recovery->started = true;
    model.recovery->last_error.clear();
    model.recovery->failures.clear();
    model.recovery->starts = StartsOf(s, model);
    TryNextStart(s, model);
    one_runs |= model.recovery != nullptr;
  }
}

void CutRecoveries(State& s, Group& group) {
  for (const std::string& id : s.models.IdsWith(group.row.group)) {
    const Recovery* const recovery = std::as_const(s.models).at(id).recovery.get();
    if (recovery == nullptr || recovery->running.empty()) continue;
    Model& model = s.models.at(id);
    model.recovery->not_before = s.now + BackOff(model.num_recoveries_cut++);
  }
}

bool OnReplayNotSent(State& s, const std::string& replay_id) {
  const auto it = s.replays.find(replay_id);
  if (it == s.replays.end()) return false;
  NeedRecovery(s, s.models.at(it->second));
  return true;
}

void RestartRecoveries(State& s) {
  for (auto& [name, group] : s.groups) {
    if (group.usable()) StartRecoveries(s, group);
  }
}

bool OnReplayDone(State& s, Group& group, const WorkerDone& event) {
  const auto it = s.replays.find(event.request_id);
  if (it == s.replays.end()) {
    OnLateReplay(s, group, event.request_id);
    return false;
  }
  Model& model = s.models.at(it->second);
  s.replays.erase(it);
  s.fx.Send(event.group, event.epoch, SendAck{{event.request_id}});
  Recovery& recovery = *model.recovery;
  const int64_t seq = recovery.running.at(event.request_id);
  recovery.running.erase(event.request_id);
  if (event.error) {
    s.fx.After(ForgetResult{event.result_id});
    OnReplayFailed(s, model, *event.error);
    StartRecoveries(s, group);
    return true;
  }
  if (seq == 0) {  // a start command
    s.fx.After(ForgetResult{event.result_id});
  } else {
    ++recovery.num_replayed;
    s.fx.After(CompareReplay{RequestIdOf(event.request_id), event.result_id});
  }
  RecordPublished(s, group, model, seq);
  CompleteRecovery(s, model);
  StartRecoveries(s, group);
  return true;
}

void RegainVersion(State& s, Sampler& sampler) {
  if (sampler.row.version_dropped) return;
  const Version* const version = Find(s.versions, sampler.row.version_id);
  if (version != nullptr && version->on_disk()) return;
  Model& model = s.models.at(sampler.row.model_id);
  const bool can_be_made = version != nullptr && model.row.state == ModelState::kReady;
  if (!can_be_made) return LoseVersion(s, sampler);
  NeedRecovery(s, model);  // a running recovery may be past it already
}

void OnVersionFailed(State& s, const WorkerVersionFailed& event) {
  Group* const group = Find(s.groups, event.group);
  if (group == nullptr || !group->attached || group->row.epoch != event.epoch) return;
  // The next sample tries again, as the file may have been unreadable for a moment only. An unnamed
  // version that is not on disk is made again.
  group->version_ids.erase(event.version_id);
  FailTransfer(s, *group, event);
  if (Version* const version = Find(s.versions, event.version_id)) {
    StopReading(s, *version, event.group, /*all=*/false);
  }
  for (const std::string& id : s.samplers.IdsWith(event.version_id)) {
    Sampler& sampler = s.samplers.at(id);
    if (!sampler.unnamed()) continue;
    const Group* const home = HomeOf(s, sampler);  // still has the version if another group failed
    if (home == nullptr || home == group) RegainVersion(s, sampler);
  }
  QueueSamplesOf(s, {event.version_id});  // samples that were not sent wait for the version
}

}  // namespace lathe::engine
