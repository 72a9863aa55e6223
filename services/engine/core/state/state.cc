#include "services/engine/core/state/state.h"

#include "absl/strings/str_format.h"
#include "services/engine/core/state/errors.h"

namespace lathe::engine {

void AskToContinue(State& s) {
  if (s.is_continue_due) return;
  s.is_continue_due = true;
  s.fx.Now(ContinueLater{});
}

std::string NewId(State& s) {
  const uint64_t high = s.random();
  const uint64_t low = s.random();
  return absl::StrFormat("%016x%016x", high, low);
}

void AnswerError(State& s, CallId call, ErrorInfo error) {
  Answer answer;
  answer.call = call;
  answer.error = std::move(error);
  s.fx.After(std::move(answer));
}

Session* FindSession(State& s, const std::string& tenant_id, const std::string& session_id) {
  Session* const session = Find(s.sessions, session_id);
  return session != nullptr && session->row.tenant_id == tenant_id ? session : nullptr;
}

std::optional<ErrorInfo> RefusalOf(const Session& session) {
  if (session.row.state == SessionState::kActive) return std::nullopt;
  return FailedPrecondition("session_finished",
                            absl::StrFormat("session %s is over (%s); create a new one",
                                            session.row.session_id, session.row.finish_reason));
}

std::string BaseModelOf(const State& s, const Request& request) {
  if (const Model* const model = Find(s.models, request.plan->model_id)) {
    return model->row.base_model;
  }
  const Sampler* const sampler = Find(s.samplers, request.row.owner_id);
  return sampler == nullptr ? "" : sampler->row.base_model;
}

}  // namespace lathe::engine
