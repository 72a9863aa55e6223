#include "services/engine/core/checkpoints/copies.h"

#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/engine/core/checkpoints/checkpoints.h"
#include "services/engine/core/requests/quotas.h"
#include "services/engine/core/state/errors.h"

namespace lathe::engine {
namespace {

std::optional<ErrorInfo> CheckSource(const CheckpointRow* source, const CopyCheckpoint& event) {
  if (source == nullptr) return NotFound("checkpoint", event.source_path);
  if (source->kind == CheckpointKind::kExternal) {
    return InvalidArgument("incompatible_checkpoint", "source_path",
                           absl::StrFormat("%s is for download only; copy a weights or a "
                                           "sampler_weights checkpoint",
                                           event.source_path));
  }
  if (source->dir == event.source_dir) return std::nullopt;
  return ErrorInfo{.status = absl::StatusCode::kUnavailable,
                   .code = "checkpoint_replaced",
                   .field = "source_path",
                   .message = absl::StrFormat("%s was replaced while it was copied; try again",
                                              event.source_path)};
}

std::optional<ErrorInfo> CheckDestination(State& s, const CopyCheckpoint& event,
                                          const std::string& model_id) {
  if (s.draining) return Draining();
  // The files are links, but they keep their bytes on disk after the source is gone.
  if (auto error = OverStorage(s, event.tenant_id)) return error;
  if (event.makes_session) return std::nullopt;
  const Session* const session = FindSession(s, event.tenant_id, event.session_id);
  if (session == nullptr) return NotFound("session", event.session_id);
  if (auto refusal = RefusalOf(*session)) return refusal;
  if (s.models.count(model_id) == 0) return std::nullopt;
  return InvalidArgument("seq_id_reused", "model_seq_id",
                         absl::StrFormat("model_seq_id %d is already used", event.model_seq_id));
}

// Returns true if `made` is a copy of `source`. A duplicate call then returns that copy.
bool IsCopyOf(const CheckpointRow* made, const CheckpointRow& source) {
  return made != nullptr && made->tinker_path != source.tinker_path &&
         made->manifest_sha256 == source.manifest_sha256;
}

// Appends a row to the audit log, in the same commit as the change.
void Audit(State& s, const CopyCheckpoint& event, const std::string& path,
           const std::string& outcome) {
  s.fx.Put(AppendAudit{{.at = s.now,
                        .tenant_id = event.tenant_id,
                        .resource = "checkpoints",
                        .event = "checkpoint_copy",
                        .actor = event.actor,
                        .object = path,
                        .outcome = outcome,
                        .details = {{"source_path", event.source_path}}}});
}

// Finds the copy that an earlier call with the same idempotency key made; its source may be gone
// since. Only that key leads to a session id of its own.
const CheckpointRow* FindEarlierCopy(const State& s, const CopyCheckpoint& event,
                                     const std::string& model_id) {
  constexpr size_t kScheme = std::string_view("tinker://").size();
  const size_t model_end = event.source_path.find('/', kScheme);
  if (!event.makes_session || model_end == std::string::npos) return nullptr;
  return FindUsable(s, event.tenant_id,
                    "tinker://" + model_id + event.source_path.substr(model_end));
}

// `dir` is empty if the source was gone before its files were linked.
void DropLinkedFiles(State& s, const CopyCheckpoint& event) {
  if (!event.dir.empty()) s.fx.After(DeleteFiles{event.dir});
}

// Returns the row of a session that is over. Written alone it gets no heartbeats, and its end frees
// nothing.
SessionRow EndedSession(const State& s, const std::string& session_id, const std::string& tenant_id,
                        std::string detail) {
  SessionRow row;
  row.session_id = session_id;
  row.tenant_id = tenant_id;
  row.state = SessionState::kEnded;
  row.finish_reason = "success";
  row.finish_detail = std::move(detail);
  row.created_at = s.now;
  row.heartbeat_at = s.now;
  return row;
}

// Returns the row of a run that has only checkpoints.
ModelRow RunOf(const State& s, const CheckpointRow& checkpoint, const std::string& session_id,
               int64_t model_seq_id, std::string reason) {
  ModelRow row;
  row.model_id = checkpoint.model_id;
  row.session_id = session_id;
  row.tenant_id = checkpoint.tenant_id;
  row.model_seq_id = model_seq_id;
  row.base_model = checkpoint.base_model;
  row.lora = checkpoint.lora;
  row.state = ModelState::kUnloaded;
  row.state_reason = std::move(reason);
  row.created_at = s.now;
  row.last_request_at = s.now;
  return row;
}

void PutEndedSession(State& s, const CopyCheckpoint& event) {
  SessionRow row =
      EndedSession(s, event.session_id, event.tenant_id, "made for a copy of " + event.source_path);
  row.project_id = event.project_id;
  s.fx.Put(PutSession{std::move(row)});
}

void PutRun(State& s, const CopyCheckpoint& event, const CheckpointRow& copy) {
  Model model;
  model.row =
      RunOf(s, copy, event.session_id, event.model_seq_id, "a copy, which cannot be trained");
  model.row.user_metadata = event.run_metadata;
  model.row_written_at = s.now;
  s.fx.Put(PutModel{model.row});
  // In an open session the run occupies its model_seq_id.
  if (event.makes_session) return;
  s.sessions.at(event.session_id).model_ids.insert(copy.model_id);
  s.models.Add(copy.model_id, std::move(model));
}

CheckpointRow CopyOf(const State& s, const CopyCheckpoint& event, const CheckpointRow& source,
                     const std::string& model_id) {
  CheckpointRow row = source;
  row.tinker_path = CheckpointPath(model_id, source.kind, source.name);
  row.model_id = model_id;
  row.tenant_id = event.tenant_id;
  row.dir = event.dir;
  row.is_public = false;
  row.created_at = s.now;
  row.expires_at = event.ttl_seconds > 0 ? s.now + event.ttl_seconds * kSecond : 0;
  return row;
}

}  // namespace

void OnCopyCheckpoint(State& s, const CopyCheckpoint& event) {
  const CheckpointRow* const source =
      FindUsable(s, event.tenant_id, event.source_path, event.reader_tenant_id);
  const std::string model_id = absl::StrFormat("%s:train:%d", event.session_id, event.model_seq_id);
  std::optional<ErrorInfo> error = CheckSource(source, event);
  Answer answer;
  answer.call = event.call;
  const CheckpointRow* made = nullptr;
  if (source == nullptr) {
    made = FindEarlierCopy(s, event, model_id);
  } else if (!error) {
    answer.id = CheckpointPath(model_id, source->kind, source->name);
    made = FindUsable(s, event.tenant_id, answer.id);
    if (!IsCopyOf(made, *source)) made = nullptr;
    if (made == nullptr) error = CheckDestination(s, event, model_id);
  }
  if (made != nullptr) {
    answer.id = made->tinker_path;
    DropLinkedFiles(s, event);
    s.fx.After(std::move(answer));
    return;
  }
  if (error) {
    DropLinkedFiles(s, event);
    Audit(s, event, answer.id.empty() ? event.source_path : answer.id, error->code);
    return AnswerError(s, event.call, *error);
  }
  CheckpointRow copy = CopyOf(s, event, *source, model_id);
  if (event.makes_session) PutEndedSession(s, event);
  PutRun(s, event, copy);
  CountCheckpoint(s, event.tenant_id, event.session_id, source->base_model);
  Audit(s, event, answer.id, "ok");
  CommitCheckpoint(s, std::move(copy));
  s.fx.After(std::move(answer));
}

void OnAdoptCheckpoint(State& s, const AdoptCheckpoint& event) {
  const CheckpointRow& row = event.checkpoint;
  if (s.draining) return AnswerError(s, event.call, Draining());
  if (s.checkpoints.count(row.tinker_path) > 0) {
    return AnswerError(s, event.call,
                       FailedPrecondition("checkpoint_exists",
                                          absl::StrFormat("checkpoint %s exists; delete it first",
                                                          row.tinker_path)));
  }
  constexpr char kWhy[] = "made for a checkpoint that came back from the trash";
  if (event.makes_session) {
    s.fx.Put(PutSession{EndedSession(s, event.session_id, row.tenant_id, kWhy)});
  }
  if (event.makes_run) {
    s.fx.Put(PutModel{RunOf(s, row, event.session_id, event.model_seq_id, kWhy)});
  }
  s.fx.Put(AppendAudit{{.at = s.now,
                        .tenant_id = row.tenant_id,
                        .resource = "checkpoints",
                        .event = "checkpoint_adopt",
                        .actor = "lathe",
                        .object = row.tinker_path,
                        .outcome = "ok",
                        .details = {{"dir", row.dir}}}});
  CommitCheckpoint(s, row);
  Answer answer;
  answer.call = event.call;
  answer.id = row.tinker_path;
  s.fx.After(std::move(answer));
}

}  // namespace lathe::engine
