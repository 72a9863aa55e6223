// The part of Runtime that feeds SessionTraces, QueueView and the metrics.
#include <type_traits>
#include <variant>

#include "absl/time/time.h"
#include "libs/common/errors.h"
#include "libs/common/fail_point/fail_point.h"
#include "libs/common/logging/logging.h"
#include "services/engine/runtime/queue_view.h"
#include "services/engine/runtime/request_spans.h"
#include "services/engine/runtime/runtime.h"

namespace lathe::engine {
namespace {

Outcome OutcomeOf(const ErrorInfo& error) {
  if (error.status == absl::StatusCode::kCancelled) return Outcome::kCancelled;
  return IsUserError(absl::Status(error.status, "")) ? Outcome::kUserError : Outcome::kServerError;
}

// Returns the request that a command runs; empty: none, or several.
std::string RequestOf(const WorkerCommand& command) {
  return std::visit(
      [](const auto& one) -> std::string {
        if constexpr (requires { one.request_id; }) {
          using Command = std::decay_t<decltype(one)>;
          if constexpr (!std::is_same_v<Command, SendCancel>) return one.request_id;
        }
        return "";
      },
      command);
}

}  // namespace

void Runtime::Trace(const Event& event) {
  if (const auto* done = std::get_if<WorkerDone>(&event.body)) {
    traces_.OnExecuted(done->request_id, event.now);
    if (done->error) TraceFailure(done->request_id, *done->error);
  } else if (const auto* delivered = std::get_if<Delivered>(&event.body)) {
    const std::optional<RequestSpan> span = traces_.OnDelivered(delivered->request_id, event.now);
    if (span && options_.tracer != nullptr) RecordDelivery(*options_.tracer, *span);
  } else if (const auto* written = std::get_if<WorkerSnapshotDone>(&event.body)) {
    TraceSnapshot(*written);
  }
}

void Runtime::TraceSnapshot(const WorkerSnapshotDone& event) {
  if (event.error) {
    LogWarn("a snapshot could not be written", {{"group", event.group},
                                                {"snapshot_id", event.snapshot_id},
                                                {"error", event.error->message}});
  }
  if (options_.observers.on_snapshot) options_.observers.on_snapshot(event);
}

void Runtime::Execute(RecordRecovery& action) {
  const double seconds = absl::ToDoubleSeconds(absl::Nanoseconds(action.nanoseconds));
  switch (action.outcome) {
    case RecordRecovery::Outcome::kRecovered:
      FailPoint("engine.recovery.done");
      LogInfo(
          "model recovered",
          {{"model_id", action.model_id}, {"replayed", action.num_replayed}, {"seconds", seconds}});
      break;
    case RecordRecovery::Outcome::kResumed:
      LogInfo("offloaded model resumed", {{"model_id", action.model_id}, {"seconds", seconds}});
      break;
    case RecordRecovery::Outcome::kFellBack:
      LogWarn("a recovery falls back to an older start",
              {{"model_id", action.model_id}, {"why", action.detail}});
      break;
    case RecordRecovery::Outcome::kLost:
      LogError("model lost", {{"model_id", action.model_id}, {"why", action.detail}});
      break;
  }
  if (options_.observers.on_recovery) options_.observers.on_recovery(action);
}

void Runtime::Execute(RecordWorkerLost& action) {
  LogWarn("worker lost", {{"group", action.group}, {"how", action.how}});
  if (options_.observers.on_worker_lost) options_.observers.on_worker_lost(action);
}

void Runtime::Execute(RecordWeightTransfer& action) {
  if (action.transport == RecordWeightTransfer::Transport::kFailed) {
    LogWarn("weight transfer from memory failed, the version is written to a file",
            {{"version_id", action.version_id},
             {"from", action.from},
             {"to", action.to},
             {"why", action.why}});
  }
  if (options_.observers.on_weight_transfer) options_.observers.on_weight_transfer(action);
}

SpanContext Runtime::SpanOf(const Event& event) {
  if (options_.tracer == nullptr) return {};
  const auto* submit = std::get_if<Submit>(&event.body);
  return submit == nullptr ? SpanContext() : calls_.SpanOf(submit->call);
}

void Runtime::TraceAccepted(const SpanContext& span) {
  for (const Action& action : actions_) {
    const auto* commit = std::get_if<Commit>(&action);
    if (commit == nullptr) continue;
    for (const Write& write : commit->writes) {
      const auto* insert = std::get_if<InsertRequest>(&write);
      if (insert == nullptr || !IsLive(insert->row)) continue;
      traces_.OnAccepted(insert->row, span);
      queue_view_.OnAccepted(insert->row);
    }
  }
}

void Runtime::TraceDispatch(const SendToWorker& action) {
  const int64_t now = NowNanos();
  const auto* batch = std::get_if<SendTrainBatch>(&action.command);
  if (batch == nullptr) {
    const std::string request_id = RequestOf(action.command);
    if (request_id.empty()) return;
    traces_.OnDispatched(request_id, action.group, 0, now);
    queue_view_.OnDispatched(request_id);
    return;
  }
  const auto num_requests = static_cast<int64_t>(batch->items.size());
  for (const SendTrainBatch::Item& item : batch->items) {
    traces_.OnDispatched(item.request_id, action.group, num_requests, now);
    queue_view_.OnDispatched(item.request_id);
  }
  if (options_.observers.on_train_batch) options_.observers.on_train_batch(num_requests);
}

QueueStatus Runtime::QueueOf(const std::string& request_id) {
  return DescribeQueue(hub_.Queue(request_id), queue_view_.PlaceOf(request_id, NowNanos()));
}

void Runtime::TraceFailure(const std::string& request_id, const ErrorInfo& error) {
  traces_.SetOutcome(request_id, OutcomeOf(error));
}

void Runtime::OnCompleted(const std::string& request_id, int64_t now) {
  queue_view_.OnCompleted(request_id);
  const std::optional<RequestSpan> span = traces_.OnCompleted(request_id, now);
  if (!span) return;
  if (options_.observers.on_request_completed) options_.observers.on_request_completed(*span);
  if (options_.tracer == nullptr || !span->context.is_sampled) return;
  RecordRequest(*options_.tracer, *span, BaseModelOf(*span));
}

std::string Runtime::BaseModelOf(const RequestSpan& span) {
  if (const auto model = directory_.FindModel(span.tenant_id, span.owner_id)) {
    return model->base_model;
  }
  const auto sampler = directory_.FindSampler(span.tenant_id, span.owner_id);
  return sampler ? sampler->base_model : "";
}

}  // namespace lathe::engine
