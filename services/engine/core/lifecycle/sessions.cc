#include "services/engine/core/lifecycle/sessions.h"

#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/engine/core/checkpoints/checkpoints.h"
#include "services/engine/core/models/model_end.h"
#include "services/engine/core/models/offload.h"
#include "services/engine/core/models/operations.h"
#include "services/engine/core/requests/quotas.h"
#include "services/engine/core/requests/tenant_usage.h"
#include "services/engine/core/samplers/samplers.h"
#include "services/engine/core/state/base_models.h"
#include "services/engine/core/state/errors.h"

namespace lathe::engine {
namespace {

constexpr int64_t kTouchInterval = 60 * kSecond;

// Makes an RFC 4122 version 4 UUID from 128 random bits.
std::string NewSessionId(State& s) {
  std::string hex = NewId(s);
  hex[12] = '4';
  hex[16] = "89ab"[hex[16] % 4];
  return absl::StrFormat("%s-%s-%s-%s-%s", hex.substr(0, 8), hex.substr(8, 4), hex.substr(12, 4),
                         hex.substr(16, 4), hex.substr(20));
}

void Finish(State& s, Session& session, const std::string& reason, const std::string& detail) {
  session.row.state = SessionState::kFinished;
  session.row.finish_reason = reason;
  session.row.finish_detail = detail;
  session.row.heartbeat_at = s.now;
  s.fx.Put(PutSession{session.row});
  for (const std::string& model_id : session.model_ids) CloseGaps(s, s.models.at(model_id));
  s.follow_ups.sessions.insert(session.row.session_id);
}

// The time to forget an ended session. The store answers for it after that.
int64_t ForgottenAt(const Session& session) {
  constexpr int64_t kEndedSessionsKept = 24 * 3600 * kSecond;
  return session.row.heartbeat_at + kEndedSessionsKept + 1;
}

// Does what is due after the client's silence. Returns the time of the next look at the session.
int64_t SweepSilent(State& s, Session& session, Budget& budget) {
  session.is_silent = true;
  // Its training completes, as its saves may be loaded later. No client waits for its samples.
  CancelSamplesOf(s, session, budget);
  const int64_t silence = s.now - session.row.heartbeat_at;
  if (silence > s.options.session_kept) {
    Finish(s, session, "expired", absl::StrFormat("no heartbeat for %d s", silence / kSecond));
    return s.now;
  }
  if (session.is_offloaded) {
    MakeIdle(s, session, budget);
  } else {
    OffloadSession(s, session, budget);
  }
  const bool is_done = session.is_offloaded && session.busy_sampler_ids.empty();
  return is_done ? session.row.heartbeat_at + s.options.session_kept + 1 : s.now;
}

// Returns the time of the next look at the session; 0: none, or the session is forgotten.
int64_t SweepOne(State& s, Session& session, Budget& budget) {
  if (session.row.state == SessionState::kEnded) {
    if (s.now < ForgottenAt(session)) return ForgottenAt(session);
    s.sessions.erase(session.row.session_id);
    return 0;
  }
  if (session.row.state == SessionState::kFinished) {
    if (session.is_silent) CancelSamplesOf(s, session, budget);
    s.follow_ups.sessions.insert(session.row.session_id);
    return session.is_silent && !session.samples.empty() ? s.now : 0;
  }
  if (s.now >= SilentAt(s, session)) return SweepSilent(s, session, budget);
  MakeBusy(s, session, budget);
  return session.idle_sampler_ids.empty() ? SilentAt(s, session) : s.now;
}

void AnswerSampler(State& s, CallId call, const std::string& id) {
  Answer answer;
  answer.call = call;
  answer.id = id;
  s.fx.After(std::move(answer));
}

// Resolves the weights that the caller asked for. A path takes precedence over a base model.
std::optional<ErrorInfo> ResolveWeights(const State& s, const CreateSamplingSession& event,
                                        SamplerRow& row) {
  row.base_model = event.base_model;
  row.model_path = event.model_path;
  if (!event.model_path.empty()) {
    const CheckpointRow* const checkpoint = FindUsable(s, event.tenant_id, event.model_path);
    if (checkpoint == nullptr) return NotFound("checkpoint", event.model_path);
    if (checkpoint->kind == CheckpointKind::kExternal) {
      return InvalidArgument(
          "incompatible_checkpoint", "model_path",
          absl::StrFormat("%s is for download only; sample from a tinker://…/sampler_weights/… "
                          "checkpoint",
                          event.model_path));
    }
    row.base_model = checkpoint->base_model;
    row.model_id = checkpoint->model_id;
    row.version_id = "checkpoint:" + checkpoint->dir;
    row.checkpoint_dir = checkpoint->dir;
  }
  return UnknownBaseModel(s, row.base_model);
}

}  // namespace

void OnCreateSession(State& s, const CreateSession& event) {
  if (s.draining) return AnswerError(s, event.call, Draining());
  const std::string& tenant_id = event.row.tenant_id;
  if (auto error = OverRate(s, tenant_id, /*tokens=*/0)) return AnswerError(s, event.call, *error);
  if (auto error = OverSessions(s, tenant_id)) return AnswerError(s, event.call, *error);
  Session session;
  session.row = event.row;
  session.row.session_id = NewSessionId(s);
  session.row.state = SessionState::kActive;
  session.row.created_at = s.now;
  session.row.heartbeat_at = s.now;
  session.last_sign_at = s.now;
  session.touch_written_at = s.now;
  Answer answer;
  answer.call = event.call;
  answer.id = session.row.session_id;
  s.fx.Put(PutSession{session.row});
  s.fx.After(std::move(answer));
  ChargeRate(s, tenant_id, s.now, /*tokens=*/0);
  TrackSession(s, std::move(session));
}

void OnHeartbeat(State& s, const Heartbeat& event) {
  Session* const session = FindSession(s, event.tenant_id, event.session_id);
  if (session == nullptr) {
    return AnswerError(s, event.call, NotFound("session", event.session_id));
  }
  Answer answer;
  answer.call = event.call;
  answer.session_finished = session->row.state != SessionState::kActive;
  if (!answer.session_finished) RecordSignOfLife(s, *session);
  s.fx.After(std::move(answer));
}

void OnFinishSession(State& s, const FinishSession& event) {
  Session* const session = FindSession(s, event.tenant_id, event.session_id);
  if (session == nullptr) {
    return AnswerError(s, event.call, NotFound("session", event.session_id));
  }
  if (session->row.state == SessionState::kActive) {
    Finish(s, *session, event.reason, event.detail);
  }
  Answer answer;
  answer.call = event.call;
  answer.id = event.session_id;
  s.fx.After(std::move(answer));
}

void OnAssignSessionProject(State& s, const AssignSessionProject& event) {
  if (Session* const session = FindSession(s, event.tenant_id, event.session_id)) {
    session->row.project_id = event.project_id;
  }
  s.fx.Put(SetSessionProject{event.tenant_id, event.session_id, event.project_id});
  s.fx.Put(AppendAudit{{.at = s.now,
                        .tenant_id = event.tenant_id,
                        .resource = "projects",
                        .event = "project_assign_session",
                        .actor = event.actor,
                        .object = event.session_id,
                        .outcome = "ok",
                        .details = {{"project_id", event.project_id}}}});
  Answer answer;
  answer.call = event.call;
  answer.id = event.session_id;
  s.fx.After(std::move(answer));
}

void RecordSignOfLife(State& s, Session& session) {
  session.last_sign_at = s.now;
  session.is_silent = false;
  if (session.is_offloaded) ResumeSession(s, session);
  if (s.now - session.touch_written_at < kTouchInterval) return;
  session.touch_written_at = s.now;
  session.row.heartbeat_at = s.now;
  s.fx.PutLater(TouchSession{session.row.session_id, s.now});
}

void TrackSession(State& s, Session session) {
  const std::string id = session.row.session_id;
  const bool has_ended = session.row.state == SessionState::kEnded;
  s.due_sessions.Set(id, has_ended ? ForgottenAt(session) : SilentAt(s, session));
  if (!has_ended) ChangeUsage(s, session.row.tenant_id, &TenantUsage::sessions, +1);
  s.sessions.emplace(id, std::move(session));
}

bool SweepSessions(State& s) {
  Budget looks(s.options.max_swept);
  Budget budget((s.options.max_swept + 1) / 2);  // samples, samplers and models
  std::vector<std::pair<int64_t, std::string>> again;
  while (!budget.is_used_up() && looks.Take()) {
    const std::optional<std::string> id = s.due_sessions.Take(s.now);
    if (!id) break;
    Session* const session = Find(s.sessions, *id);
    if (session == nullptr) continue;
    if (const int64_t due_at = SweepOne(s, *session, budget)) {
      again.emplace_back(due_at, *id);
    }
  }
  for (const auto& [due_at, id] : again) s.due_sessions.Set(id, due_at);
  return budget.is_used_up();
}

void EndIfComplete(State& s, const std::string& session_id) {
  Session* const session = Find(s.sessions, session_id);
  if (session == nullptr || session->row.state != SessionState::kFinished) return;
  if (session->num_live_requests > 0) return;
  // Samplers first: releasing one needs the group of its model.
  for (std::set<std::string>* ids :
       {&session->busy_sampler_ids, &session->idle_sampler_ids, &session->model_ids}) {
    const bool are_models = ids == &session->model_ids;
    while (!ids->empty()) {
      if (!s.ending.Take()) return s.due_sessions.Set(session_id, s.now);
      const std::string id = std::move(ids->extract(ids->begin()).value());
      are_models ? ReleaseModel(s, id) : ReleaseSampler(s, id);
    }
  }
  session->row.state = SessionState::kEnded;
  ChangeUsage(s, session->row.tenant_id, &TenantUsage::sessions, -1);
  s.fx.Put(PutSession{session->row});
  s.due_sessions.Set(session_id, ForgottenAt(*session));
}

void OnCreateSamplingSession(State& s, const CreateSamplingSession& event) {
  Session* const session = FindSession(s, event.tenant_id, event.session_id);
  if (session == nullptr) {
    return AnswerError(s, event.call, NotFound("session", event.session_id));
  }
  const std::string id = SamplerId(event.session_id, event.sampling_session_seq_id);
  if (const Sampler* const known = Find(s.samplers, id)) {
    const bool same = !known->unnamed() && known->row.model_path == event.model_path &&
                      (!event.model_path.empty() || known->row.base_model == event.base_model);
    if (same) return AnswerSampler(s, event.call, id);
  }
  if (s.draining) return AnswerError(s, event.call, Draining());
  if (auto refusal = RefusalOf(*session)) return AnswerError(s, event.call, *refusal);
  if (session->sampler_seqs.count(event.sampling_session_seq_id) > 0) {
    return AnswerError(s, event.call,
                       InvalidArgument("seq_id_reused", "sampling_session_seq_id",
                                       absl::StrFormat("sampling_session_seq_id %d was already "
                                                       "used by a different request",
                                                       event.sampling_session_seq_id)));
  }
  if (auto error = OverSamplers(s, event.tenant_id)) return AnswerError(s, event.call, *error);
  SamplerRow row;
  if (auto error = ResolveWeights(s, event, row)) return AnswerError(s, event.call, *error);
  row.sampling_session_id = id;
  row.session_id = event.session_id;
  row.tenant_id = event.tenant_id;
  row.sampling_session_seq_id = event.sampling_session_seq_id;
  row.created_at = s.now;
  RecordSignOfLife(s, *session);
  s.fx.Put(PutSampler{row});
  TrackSampler(s, std::move(row));
  AnswerSampler(s, event.call, id);
}

void OnJoinSamplingSession(State& s, const JoinSamplingSession& event) {
  Sampler* const sampler = FindSampler(s, event.tenant_id, event.sampling_session_id);
  if (sampler == nullptr) {
    return AnswerError(s, event.call, NotFound("sampling_session", event.sampling_session_id));
  }
  Session& session = s.sessions.at(sampler->row.session_id);
  if (s.draining) return AnswerError(s, event.call, Draining());
  if (auto refusal = RefusalOf(session)) return AnswerError(s, event.call, *refusal);
  RecordSignOfLife(s, session);
  ++sampler->row.num_joined;
  s.fx.Put(PutSampler{sampler->row});
  Answer answer;
  answer.call = event.call;
  answer.client_counter = sampler->row.num_joined;
  s.fx.After(std::move(answer));
}

}  // namespace lathe::engine
