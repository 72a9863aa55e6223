#include "services/engine/runtime/runtime.h"

#include <algorithm>
#include <system_error>
#include <variant>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "libs/common/errors.h"
#include "libs/common/fail_point/fail_point.h"
#include "libs/common/logging/logging.h"
#include "libs/common/random/random_id.h"
#include "libs/common/status_macros.h"
#include "services/engine/core/state/plan.h"
#include "services/engine/runtime/result_encoder.h"

namespace lathe::engine {
namespace {

constexpr absl::Duration kTickPeriod = absl::Seconds(1);

// Returns the bytes that a write carries; null for none.
CommitLoop::Item::NamedBytes BytesOf(const Write& write, Bodies& bodies, Results& results) {
  if (const auto* insert = std::get_if<InsertRequest>(&write)) {
    const RequestRow& row = insert->row;
    if (!row.body_id.empty() && row.body_bytes <= kInlineBodyBytes) {
      return {row.body_id, bodies.InMemory(row.body_id)};
    }
  } else if (const auto* complete = std::get_if<CompleteRequest>(&write)) {
    return {complete->result_id, results.Held(complete->result_id)};
  }
  return {};
}

// Returns the directory of files that a write names; empty: none.
std::string DirNamedBy(const Write& write) {
  if (const auto* snapshot = std::get_if<PutSnapshot>(&write)) return snapshot->row.snapshot_id;
  if (const auto* version = std::get_if<PutVersion>(&write)) return version->row.dir;
  const auto* checkpoint = std::get_if<PutCheckpoint>(&write);
  const bool has_files =
      checkpoint != nullptr && checkpoint->row.state != CheckpointState::kDeleted;
  return has_files ? checkpoint->row.dir : "";
}

// Models of such a store could not be rebuilt, because their operations cannot be repeated.
absl::Status CheckPlans(const StoredState& state) {
  for (const RequestRow& row : state.requests) {
    if (!IsPlanBeforeProto(row.plan)) continue;
    return absl::FailedPreconditionError(
        absl::StrFormat("the store has requests, such as %s, whose plan has format %d of an engine "
                        "before version 0.1.0; this engine does not read it: use an empty store",
                        row.request_id, row.plan.front()));
  }
  return absl::OkStatus();
}

}  // namespace

Runtime::Runtime(Options options, Store& store, Clock& clock)
    : options_(std::move(options)),
      store_(store),
      clock_(clock),
      last_step_at_(std::chrono::steady_clock::now()),
      bodies_(store, options_.max_cached_body_bytes),
      results_(options_.max_cached_result_bytes),
      hub_(store, results_),
      traces_(SessionTraces::Options(), NowNanos()),
      divergence_(store),
      series_book_(store),
      series_heads_(store, series_book_, options_.series),
      request_lookup_(store),
      checkpoint_dirs_(MakeCheckpointDirs(options_.checkpoints_dir, options_.stored_checkpoints,
                                          options_.trash_kept)),
      events_(options_.max_waiting_calls) {}

Runtime::~Runtime() { Stop(); }

absl::Status Runtime::Start(WorkerSender& sender) {
  ASSIGN_OR_RETURN(StoredState state, store_.TakeLeadership());
  return Start(sender, std::move(state));
}

absl::Status Runtime::Start(WorkerSender& sender, StoredState state) {
  RETURN_IF_ERROR(CheckPlans(state));
  sender_ = &sender;
  checkpoint_dirs_->ListAtStart();
  FailPoint("engine.start.loaded");
  term_ = state.term;
  directory_.Load(state);
  RETURN_IF_ERROR(LoadCompletions(state));
  for (const RequestRow& row : state.requests) {
    if (!IsLive(row)) continue;
    hub_.OnAccepted(row);
    traces_.OnAccepted(row);
    queue_view_.OnAccepted(row);
    traces_.OnDurable(row.request_id, row.accepted_at);
  }
  purger_ = std::make_unique<Purger>(store_, term_);
  series_book_.Load();
  folder_ = std::make_unique<SeriesFolder>(options_.series, store_, series_book_,
                                           [this] { return NowNanos(); });
  commits_ = std::make_unique<CommitLoop>(
      store_, term_,
      CommitLoop::Callbacks{
          .points_of = MakePointsOf(),
          .on_points =
              [this](int64_t journal_id, const std::vector<PointEntryPtr>& entries) {
                series_book_.OnDurable(journal_id, entries);
                changes_.OnPoints(journal_id, entries);
              },
          .on_durable = [this](const std::vector<CommitLoop::Item>& items) { OnDurable(items); },
          .on_full = [this](const absl::Status& status) { OnFull(status); },
          .on_failure = options_.on_fatal,
          .on_timed = options_.observers.on_commit});
  core_thread_ = std::make_unique<NamedThread>(
      "engine-core", [this, loaded = std::move(state)]() mutable { RunCore(std::move(loaded)); });
  ticker_ = std::make_unique<PeriodicTask>("engine-ticker", kTickPeriod, [this] { OnTick(); });
  comparer_ = std::make_unique<PeriodicTask>("engine-compare", kTickPeriod,
                                             [this] { divergence_.Compare(); });
  return absl::OkStatus();
}

absl::Status Runtime::LoadCompletions(const StoredState& state) {
  ASSIGN_OR_RETURN(const std::vector<CompletionRow> rows, store_.ListUndeliveredSamples());
  completions_.Load(rows, state.term);
  for (const RequestRow& row : state.requests) {
    if (IsLive(row)) completions_.OnAccepted(row);
  }
  return absl::OkStatus();
}

void Runtime::Stop() {
  ticker_.reset();
  comparer_.reset();
  events_.Close();
  core_thread_.reset();
  commits_.reset();
  purger_.reset();
  folder_.reset();
  checkpoint_dirs_->Finish(absl::FromUnixNanos(NowNanos()));
  calls_.FailAll(ToErrorInfo(absl::UnavailableError("the engine is stopping")));
  request_lookup_.Stop();
}

void Runtime::RefuseCall(CallId call) {
  Answer answer;
  answer.call = call;
  answer.error = ErrorInfo{.status = absl::StatusCode::kResourceExhausted,
                           .code = "too_many_calls",
                           .field = "",
                           .message = "too many calls wait for the engine"};
  calls_.Finish(answer);
}

void Runtime::RefuseFull(CallId call) {
  Answer answer;
  answer.call = call;
  const absl::Status room = CheckRoom();
  answer.error = ToErrorInfo(
      room.ok() ? absl::UnavailableError("the disk was full a moment ago; try again") : room);
  calls_.Finish(answer);
}

absl::Status Runtime::CheckRoom() {
  absl::MutexLock lock(&mu_);
  return room_;
}

void Runtime::OnFull(const absl::Status& status) {
  const bool is_full = !status.ok();
  if (is_full && !is_disk_full_) {
    LogError("the disk is full: nothing more is accepted until there is room",
             {{"error", status.message()}});
  }
  if (!is_full) LogInfo("there is room on the disk again");
  {
    absl::MutexLock lock(&mu_);
    room_ = is_full ? WithDetail(status, "disk_full") : status;
  }
  is_disk_full_ = is_full;
}

void Runtime::RunCore(StoredState state) {
  Core core(options_.core);
  StepCore(core, Loaded{.state = std::move(state), .random_seed = RandomUint64()});
  std::vector<EventBody> events;
  while (events_.PopAll(events)) {
    for (EventBody& event : events) StepCore(core, std::move(event));
  }
}

void Runtime::StepCore(Core& core, EventBody body) {
  if (std::holds_alternative<Tick>(body)) FailPoint("engine.tick");
  const auto began = std::chrono::steady_clock::now();
  const Event event{.now = NowNanos(), .body = std::move(body)};
  actions_.clear();
  Trace(event);
  const SpanContext span = SpanOf(event);
  core.Step(event, &actions_);
  TraceAccepted(span);
  for (Action& action : actions_) {
    std::visit([this](auto& one) { Execute(one); }, action);
  }
  const auto now = std::chrono::steady_clock::now();
  if (options_.observers.on_core_step) {
    options_.observers.on_core_step(absl::FromChrono(now - began));
  }
  last_step_at_ = now;
}

absl::Duration Runtime::CoreIdleTime() const {
  return absl::FromChrono(std::chrono::steady_clock::now() - last_step_at_.load());
}

void Runtime::Execute(Commit& action) {
  CommitLoop::Item item;
  for (const Write& write : action.writes) {
    if (std::holds_alternative<InsertRequest>(write)) FailPoint("engine.accept");
    if (std::holds_alternative<CompleteRequest>(write)) FailPoint("engine.result.before_commit");
    if (std::holds_alternative<PutSnapshot>(write)) FailPoint("engine.snapshot.before_commit");
    if (std::holds_alternative<PutVersion>(write)) FailPoint("engine.version.before_commit");
    CommitLoop::Item::NamedBytes blob = BytesOf(write, bodies_, results_);
    if (blob.bytes) item.blobs.push_back(std::move(blob));
  }
  item.commit = std::move(action);
  commits_->Enqueue(std::move(item));
}

void Runtime::Execute(Answer& action) {
  if (!action.id.empty() && !action.group.empty()) hub_.SetGroup(action.id, action.group);
  calls_.Finish(action);
}

void Runtime::Execute(MakeResult& action) {
  if (action.error) TraceFailure(action.request_id, *action.error);
  results_.HoldAs(action.result_id, EncodeResult(action));
}

void Runtime::Execute(NotifyDone& action) {
  FailPoint("engine.notify.before");
  hub_.NotifyDone(action.request_id);
  FailPoint("engine.notify.after");
}

void Runtime::Execute(NotifyQueueState& action) {
  hub_.SetQueueState(action.group, {.paused = action.paused, .reason = action.reason});
  absl::MutexLock lock(&mu_);
  if (action.trouble == GroupTrouble::kNone) {
    troubles_.erase(action.group);
  } else {
    troubles_[action.group] = std::move(action);
  }
}

std::map<std::string, NotifyQueueState> Runtime::Troubles() {
  absl::MutexLock lock(&mu_);
  return troubles_;
}

void Runtime::Execute(NotifyGroupDrain& action) {
  absl::MutexLock lock(&mu_);
  if (action.is_draining) {
    drains_[action.group] = std::move(action);
  } else {
    drains_.erase(action.group);
  }
}

std::map<std::string, NotifyGroupDrain> Runtime::GroupDrains() {
  absl::MutexLock lock(&mu_);
  return drains_;
}

void Runtime::Execute(SendToWorker& action) {
  if (std::holds_alternative<SendRestoreAdapter>(action.command)) {
    FailPoint("engine.recovery.restore");
  }
  TraceDispatch(action);
  sender_->Send(std::move(action));
}

void Runtime::Execute(DeleteFiles& action) { checkpoint_dirs_->Delete(std::move(action.dir)); }

void Runtime::Execute(DeleteOtherFiles& action) { checkpoint_dirs_->KeepOnly(action.needed_dirs); }

void Runtime::Execute(ForgetBody& action) { bodies_.Forget(action.body_id); }

void Runtime::Execute(ForgetResult& action) { results_.Forget(action.result_id); }

void Runtime::Execute(CompareReplay& action) {
  FailPoint("engine.recovery.replayed");
  divergence_.Add(action.request_id, results_.Held(action.result_id));
  results_.Forget(action.result_id);
}

void Runtime::OnDurable(const std::vector<CommitLoop::Item>& items) {
  const int64_t now = NowNanos();
  for (const CommitLoop::Item& item : items) OnDurable(item, now);
  completions_.WakeWaiters();
  events_.Push(Committed{.commit_id = items.back().commit.commit_id});
}

void Runtime::OnDurable(const CommitLoop::Item& item, int64_t now) {
  for (const Write& write : item.commit.writes) {
    if (const auto* insert = std::get_if<InsertRequest>(&write)) {
      if (IsLive(insert->row)) {
        hub_.OnAccepted(insert->row);
        completions_.OnAccepted(insert->row);
      }
      traces_.OnDurable(insert->row.request_id, now);
      bodies_.MarkCommitted(insert->row.body_id);
    } else if (const auto* complete = std::get_if<CompleteRequest>(&write)) {
      const SharedBytes result = results_.Held(complete->result_id);
      completions_.OnCompleted(*complete, result ? static_cast<int64_t>(result->size()) : 0);
      results_.Finish(complete->result_id, complete->request_id);
      OnCompleted(complete->request_id, now);
    } else if (const auto* delivered = std::get_if<MarkDelivered>(&write)) {
      completions_.OnDelivered(delivered->request_id);
    } else if (const auto* dropped = std::get_if<DropResult>(&write)) {
      completions_.OnDelivered(dropped->request_id);
      results_.Drop(dropped->request_id);
    } else if (const auto* purge = std::get_if<PurgeResults>(&write)) {
      completions_.ForgetBefore(purge->done_before);
      purger_->Start(*purge);
    } else {
      if (std::holds_alternative<PutSnapshot>(write)) FailPoint("engine.snapshot.committed");
      if (std::holds_alternative<PutVersion>(write)) FailPoint("engine.version.committed");
      directory_.Apply(write);
      changes_.OnWrite(write);
      if (const std::string dir = DirNamedBy(write); !dir.empty()) checkpoint_dirs_->Keep(dir);
    }
  }
}

void Runtime::OnTick() {
  events_.Push(Tick{});
  checkpoint_dirs_->DoWork(absl::FromUnixNanos(NowNanos()));
  calls_.FailExpired(std::chrono::steady_clock::now(),
                     {.status = absl::StatusCode::kUnavailable,
                      .code = "store_unavailable",
                      .field = "",
                      .message = "the database did not answer in time"});
}

}  // namespace lathe::engine
