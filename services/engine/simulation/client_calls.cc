// A client's communication with engines: lost and duplicate messages, retries, polls.
#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/engine/core/state/plan.h"
#include "services/engine/simulation/sim_client.h"

namespace lathe::engine::simulation {
namespace {

bool IsTransient(const ErrorInfo& error) {
  return error.status == absl::StatusCode::kResourceExhausted ||
         error.status == absl::StatusCode::kUnavailable;
}

}  // namespace

void SimClient::SendOnce(const EventBody& event, const SharedBody& body,
                         const OnAnswer& on_answer) {
  const Swarm& swarm = world_.swarm;
  for (int copies = Chance(swarm.duplicate) ? 2 : 1; copies > 0; --copies) {
    if (naps_ || Chance(swarm.lost_request)) continue;
    world_.time.After(world_.Delay(swarm.max_delay), [this, event, body, on_answer] {
      SimEngine* const engine = find_engine_();
      if (engine == nullptr) return;
      engine->Call(event, body, [this, on_answer](const Answer& answer) {
        if (naps_ || Chance(world_.swarm.lost_answer)) return;
        world_.time.After(world_.Delay(world_.swarm.max_delay), [this, on_answer, answer] {
          if (!has_vanished_) on_answer(answer);
        });
      });
    });
  }
}

void SimClient::Ask(EventBody event, OnAnswer on_answer) {
  ++num_asking_;
  const auto is_answered = std::make_shared<bool>(false);
  const auto send = std::make_shared<std::function<void()>>();
  // The next planned event keeps the function alive.
  *send = [this, event = std::move(event), on_answer = std::move(on_answer), is_answered,
           weak = std::weak_ptr(send)] {
    if (*is_answered || has_vanished_) return;
    SendOnce(event, nullptr, [this, on_answer, is_answered](const Answer& answer) {
      if (*is_answered || (answer.error && IsTransient(*answer.error))) return;
      *is_answered = true;
      --num_asking_;
      on_answer(answer);
    });
    world_.time.After(world_.Delay(4 * kSecond) + kSecond, [again = weak.lock()] { (*again)(); });
  };
  (*send)();
}

void SimClient::Send(ClientOp& op) {
  if (has_vanished_ || op.is_answered || op.is_given_up) return;
  SendOnce(op.submit, op.body, [this, &op](const Answer& answer) { HandleAnswer(op, answer); });
  const int64_t patience = world_.Delay(4 * kSecond) + 2 * world_.swarm.max_delay;
  world_.time.After(patience, [this, &op] {
    if (op.is_answered || has_vanished_) return;
    op.is_given_up = !world_.is_healed && Chance(world_.swarm.give_up);
    Send(op);
  });
}

void SimClient::HandleAnswer(ClientOp& op, const Answer& answer) {
  if (answer.error) return HandleRefusal(op, *answer.error);
  if (op.is_foreign || op.is_reuse) {
    throw Violation(
        op.is_foreign ? "I5" : "I2",
        absl::StrFormat("%s: %s seq %d was accepted", name_, op.submit.owner_id, op.submit.seq_id));
  }
  if (!op.request_id.empty() && op.request_id != answer.id) {
    if (IsForgotten(op)) return RecordAnswer();
    throw Violation(
        "I2", absl::StrFormat("%s: %s seq %d is request %s and request %s", name_,
                              op.submit.owner_id, op.submit.seq_id, op.request_id, answer.id));
  }
  RecordAnswer();
  if (!op.request_id.empty()) return;
  op.is_answered = true;
  op.request_id = answer.id;
  op.accepted_at = world_.time.now();
  Poll(op);
}

void SimClient::HandleRefusal(ClientOp& op, const ErrorInfo& error) {
  if (IsTransient(error)) return;  // the client sends it again
  RecordSilence();                 // it may only learn that the session is over
  const Submit& submit = op.submit;
  const bool is_kept = world_.store.FindByKey(submit.tenant_id, submit.owner_id, submit.op_class,
                                              submit.seq_id) != nullptr;
  if (error.code == "seq_id_abandoned" && is_kept) {
    throw Violation("I2", absl::StrFormat("%s: %s seq %d was accepted and is said to be abandoned",
                                          name_, submit.owner_id, submit.seq_id));
  }
  // The refusal answers a late duplicate.
  if (!op.request_id.empty() && error.code != "seq_id_reused") return;
  if (!MayBeRefused(op, error)) {
    throw Violation(
        "I1",
        absl::StrFormat("%s: %s seq %d kind %d is refused: %s %s", name_, submit.owner_id,
                        submit.seq_id, static_cast<int>(submit.kind), error.code, error.message));
  }
  op.is_answered = true;
}

void SimClient::Poll(ClientOp& op) {
  world_.time.After(world_.Delay(kSecond), [this, &op] {
    if (has_vanished_ || op.result) return;
    SimEngine* const engine = find_engine_();
    const bool reaches =
        engine != nullptr && engine->is_up() && !naps_ && !Chance(world_.swarm.lost_request);
    const SimResult* const result = reaches ? engine->GetResult(op.request_id) : nullptr;
    if (reaches && result == nullptr && IsDropped(op)) {
      op.is_dropped = true;
      return;
    }
    if (result == nullptr || Chance(world_.swarm.lost_answer)) return Poll(op);
    world_.store.RecordHandedOut(op.request_id, world_.Now());
    if (!Chance(world_.swarm.lost_request)) engine->PostDelivered(op.request_id);
    HandleResult(op, *result);
  });
}

// A new leader does not know samples whose result a limit removed, as they may be many. A
// repetition is then a new request, whose result the client gets.
bool SimClient::IsForgotten(const ClientOp& op) const {
  return op.submit.op_class != OpClass::kTrain && IsDropped(op);
}

bool SimClient::IsDropped(const ClientOp& op) const {
  if (!world_.store.IsResultDropped(op.request_id)) return false;
  if (!world_.swarm.may_drop_results()) throw Violation("I3", op.request_id + " lost its result");
  return true;
}

void SimClient::CheckNotAccepted(const Submit& submit) const {
  const RequestRow* const row =
      world_.store.FindByKey(submit.tenant_id, submit.owner_id, submit.op_class, submit.seq_id);
  if (row == nullptr) return;
  const auto plan = DecodePlan(row->plan);
  if (plan && plan->refused) return;
  throw Violation("I1", absl::StrFormat("%s seq %d was refused and is request %s", submit.owner_id,
                                        submit.seq_id, row->request_id));
}

void SimClient::HandleResult(ClientOp& op, const SimResult& result) {
  op.result = result;
  ReadAgain(op);
  SendAgain(op);
  if (!result.failed) return RecordSuccess(op, result);
  if (result.code.empty() || result.message.empty()) {
    throw Violation("I1", op.request_id + " failed without a reason");
  }
  if (!MayFail(op, result)) {
    throw Violation(
        "I1", absl::StrFormat("%s: %s seq %d kind %d (%s) failed: %s %s", name_, op.submit.owner_id,
                              op.submit.seq_id, static_cast<int>(op.submit.kind), op.request_id,
                              result.code, result.message));
  }
}

void SimClient::ReadAgain(ClientOp& op) {
  if (!Chance(200)) return;
  world_.time.After(world_.Delay(100 * kSecond), [this, &op] {
    SimEngine* const engine = find_engine_();
    if (engine == nullptr || !engine->is_up() || has_vanished_) return;
    const SimResult* const again = engine->GetResult(op.request_id);
    if (again == nullptr || *again == *op.result) return;  // retention may have removed it
    throw Violation("I3", op.request_id + " has another result now");
  });
}

// Sends a request again long after its end. The answer must be the same.
void SimClient::SendAgain(ClientOp& op) {
  if (op.submit.op_class != OpClass::kTrain || op.submit.seq_id == 0 || !Chance(200)) return;
  world_.time.After(world_.Delay(300 * kSecond), [this, &op] {
    if (has_vanished_) return;
    SendOnce(op.submit, op.body, [this, &op](const Answer& answer) { HandleAnswer(op, answer); });
  });
}

void SimClient::RecordSuccess(const ClientOp& op, const SimResult& result) {
  if (op.submit.kind == OperationKind::kSaveWeights) training_paths_.push_back(result.path);
  if (op.submit.kind != OperationKind::kSaveWeightsForSampler) return;
  if (result.sampling_session_id.empty()) {
    sampler_paths_.push_back(result.path);
  } else {
    samplers_.push_back({result.sampling_session_id, 1});
    object_ids_.push_back(result.sampling_session_id);
  }
}

// ---- expected errors and their causes

bool SimClient::session_may_be_over() const {
  // The engine writes heartbeats to the store only once a minute.
  const CoreOptions& core = world_.swarm.core;
  const int64_t kept = std::max(core.session_timeout, core.session_kept - 60 * kSecond);
  return is_finishing_ || was_away_ || world_.time.now() - heard_at_ > kept / 2;
}

bool SimClient::may_have_been_silent() const {
  const bool is_silent = world_.time.now() - heard_at_ > world_.swarm.core.session_timeout / 2;
  return is_finishing_ || is_silent || world_.silent_sessions.contains(session_id_);
}

bool SimClient::MayBeRefused(const ClientOp& op, const ErrorInfo& error) const {
  const std::string& code = error.code;
  const Submit& submit = op.submit;
  if (code == "session_finished") return session_may_be_over();
  if (op.is_foreign) return code == "not_found";
  if (code == "not_found") {
    // A finished session is forgotten after a day, and a checkpoint may have been deleted.
    return session_may_be_over() || submit.kind == OperationKind::kLoadWeights;
  }
  const bool is_unloaded = std::any_of(programs_.begin(), programs_.end(), [&](const Program& p) {
    return p.model_id == submit.owner_id && p.is_unloaded;
  });
  if (code == "model_unloaded") return is_unloaded;
  const auto* const save = std::get_if<SaveArgs>(&submit.args);
  const bool is_over_limit = world_.swarm.limits_samplers() && save != nullptr &&
                             save->name.empty() && !op.is_reuse && !op.is_foreign;
  if (is_over_limit && (code == "sampler_quota" || code == "seq_id_refused")) {
    CheckNotAccepted(submit);
    return true;
  }
  if (code == "seq_id_reused" || code == "seq_id_refused") return op.is_reuse;
  if (code == "seq_id_abandoned") {
    return op.is_reuse || is_unloaded || session_may_be_over() ||
           std::any_of(ops_.begin(), ops_.end(), [&](const ClientOp& other) {
             return other.submit.owner_id == submit.owner_id && other.submit.seq_id > submit.seq_id;
           });
  }
  // Before the first worker attached, no base model is known.
  return code == "unknown_base_model";
}

bool SimClient::MayFail(const ClientOp& op, const SimResult& result) const {
  const std::string& code = result.code;
  const OperationKind kind = op.submit.kind;
  if (code == "bad_datum") return op.body != nullptr && op.body->fails;
  if (code == "invalid") return op.submit.invalid.has_value();
  if (code == "incomplete_gradient") return kind == OperationKind::kOptimStep;
  if (code == "load_failed") return world_.swarm.load > 0;
  if (code == "checkpoint_exists") return std::holds_alternative<SaveArgs>(op.submit.args);
  if (code == "not_found") return kind == OperationKind::kLoadWeights;
  if (code == "cancelled") return op.is_cancelled || may_have_been_silent();
  // Checkpoints are not pinned for a client that is gone.
  if (code == "checkpoint_deleted" || code == "version_absent") {
    // Samples under way when a worker loses a version fail with this code.
    const bool is_lost = code == "version_absent" && world_.swarm.version_loss_every > 0;
    return kind == OperationKind::kSample && (may_have_been_silent() || is_lost);
  }
  if (code == "version_dropped") return kind == OperationKind::kSample;
  if (code == "model_failed" || code == "internal") {
    // A request must not fail because another one crashed their worker.
    const bool is_poison = op.body != nullptr && op.body->kills > 0;
    const bool is_attributed = result.message.find("the worker died") != std::string::npos;
    return is_attributed && world_.lost_worker && (is_poison || world_.swarm.may_fail_bystanders());
  }
  return false;
}

}  // namespace lathe::engine::simulation
