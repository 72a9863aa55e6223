#include "services/engine/core/checkpoints/checkpoints.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/engine/core/requests/save_sizes.h"
#include "services/engine/core/state/base_models.h"
#include "services/engine/core/state/errors.h"
#include "services/engine/core/state/needed_files.h"

namespace lathe::engine {
namespace {

bool IsExpired(const State& s, const CheckpointRow& row) {
  return row.expires_at > 0 && row.expires_at <= s.now;
}

void CountStored(State& s, const CheckpointRow& row, int64_t sign) {
  const auto it = s.stored.try_emplace({row.tenant_id, row.base_model}).first;
  it->second.num += sign;
  it->second.bytes += sign * row.size_bytes;
  if (it->second.num == 0) s.stored.erase(it);
}

// Removes a checkpoint from the indexes. Its files stay.
CheckpointRow Untrack(State& s, const std::string& path) {
  CheckpointRow row = std::move(s.checkpoints.extract(path).mapped());
  s.checkpoint_of_dir.erase(row.dir);
  s.due_checkpoints.Remove(path);
  CountStored(s, row, -1);
  return row;
}

void ScheduleExpiry(State& s, const CheckpointRow& row) {
  if (row.expires_at > 0) {
    s.due_checkpoints.Set(row.tinker_path, row.expires_at);
  } else {
    s.due_checkpoints.Remove(row.tinker_path);
  }
}

void Remove(State& s, const std::string& path) {
  CheckpointRow row = Untrack(s, path);
  row.state = CheckpointState::kDeleted;
  DeleteFilesIfUnused(s, row.dir);
  s.fx.Put(PutCheckpoint{std::move(row)});
}

CheckpointRow* FindOwn(State& s, const std::string& tenant_id, const std::string& path) {
  CheckpointRow* const row = Find(s.checkpoints, path);
  if (row == nullptr || row->tenant_id != tenant_id || IsExpired(s, *row)) return nullptr;
  return row;
}

void AnswerDone(State& s, CallId call, const std::string& path) {
  Answer answer;
  answer.call = call;
  answer.id = path;
  s.fx.After(std::move(answer));
}

// Appends a row to the audit log, in the same commit as the change.
void Audit(State& s, const std::string& tenant_id, const std::string& actor, const char* event,
           const std::string& path, const char* outcome) {
  s.fx.Put(AppendAudit{{.at = s.now,
                        .tenant_id = tenant_id,
                        .resource = "checkpoints",
                        .event = event,
                        .actor = actor,
                        .object = path,
                        .outcome = outcome,
                        .details = {}}});
}

// Refuses a change of a checkpoint that the caller does not own.
template <typename CallEvent>
void AnswerAbsent(State& s, const CallEvent& event, const char* name) {
  Audit(s, event.tenant_id, event.actor, name, event.tinker_path, "not_found");
  AnswerError(s, event.call, NotFound("checkpoint", event.tinker_path));
}

std::string Geometry(const LoraConfig& lora) {
  return absl::StrFormat("rank %d, train_attn %d, train_mlp %d, train_unembed %d", lora.rank,
                         lora.train_attn, lora.train_mlp, lora.train_unembed);
}

// Returns why `checkpoint` does not fit a model of that shape. If the module families are equal,
// the model takes on the checkpoint's target modules and alpha.
std::optional<ErrorInfo> CheckGeometry(const CheckpointRow& checkpoint, const LoraConfig& lora) {
  const bool fits =
      Geometry(checkpoint.lora) == Geometry(lora) ||
      (checkpoint.lora.rank == lora.rank && checkpoint.lora.target_modules == lora.target_modules);
  if (fits) return std::nullopt;
  return InvalidArgument(
      "incompatible_checkpoint", "path",
      absl::StrFormat("checkpoint %s has %s; the model has %s", checkpoint.tinker_path,
                      Geometry(checkpoint.lora), Geometry(lora)));
}

}  // namespace

void OnDeleteCheckpoint(State& s, const DeleteCheckpoint& event) {
  constexpr char kEvent[] = "checkpoint_delete";
  if (FindOwn(s, event.tenant_id, event.tinker_path) == nullptr) {
    return AnswerAbsent(s, event, kEvent);
  }
  Remove(s, event.tinker_path);
  Audit(s, event.tenant_id, event.actor, kEvent, event.tinker_path, "ok");
  AnswerDone(s, event.call, event.tinker_path);
}

void OnPublishCheckpoint(State& s, const PublishCheckpoint& event) {
  const char* const name = event.is_public ? "checkpoint_publish" : "checkpoint_unpublish";
  CheckpointRow* const row = FindOwn(s, event.tenant_id, event.tinker_path);
  if (row == nullptr) return AnswerAbsent(s, event, name);
  if (row->is_public != event.is_public) {
    row->is_public = event.is_public;
    s.fx.Put(PutCheckpoint{*row});
  }
  Audit(s, event.tenant_id, event.actor, name, event.tinker_path, "ok");
  AnswerDone(s, event.call, event.tinker_path);
}

void OnSetCheckpointTtl(State& s, const SetCheckpointTtl& event) {
  constexpr char kEvent[] = "checkpoint_set_ttl";
  CheckpointRow* const row = FindOwn(s, event.tenant_id, event.tinker_path);
  if (row == nullptr) return AnswerAbsent(s, event, kEvent);
  row->expires_at = event.ttl_seconds > 0 ? s.now + event.ttl_seconds * kSecond : 0;
  ScheduleExpiry(s, *row);
  s.fx.Put(PutCheckpoint{*row});
  Audit(s, event.tenant_id, event.actor, kEvent, event.tinker_path, "ok");
  AnswerDone(s, event.call, event.tinker_path);
}

std::string CheckpointPath(const std::string& model_id, CheckpointKind kind,
                           const std::string& name) {
  const char* folder = "weights";
  if (kind == CheckpointKind::kSampler) folder = "sampler_weights";
  if (kind == CheckpointKind::kExternal) folder = "external_weights";
  return absl::StrFormat("tinker://%s/%s/%s", model_id, folder, name);
}

CheckpointKind KindOf(const Request& save) { return CheckpointKindOf(save.row.kind); }

const CheckpointRow* FindUsable(const State& s, const std::string& tenant_id,
                                const std::string& tinker_path,
                                const std::string& reader_tenant_id) {
  const CheckpointRow* const row = Find(s.checkpoints, tinker_path);
  if (row == nullptr || IsExpired(s, *row)) return nullptr;
  const bool may_read = row->tenant_id == tenant_id || row->is_public ||
                        (!reader_tenant_id.empty() && row->tenant_id == reader_tenant_id);
  return may_read ? row : nullptr;
}

std::optional<ErrorInfo> CheckLoadable(const CheckpointRow& checkpoint, const LoadArgs& args,
                                       const std::string& base_model) {
  if (checkpoint.kind != CheckpointKind::kTraining) {
    return InvalidArgument("incompatible_checkpoint", "path",
                           absl::StrFormat("%s has no training state; load a tinker://…/weights/… "
                                           "checkpoint",
                                           args.path));
  }
  if (!base_model.empty() && checkpoint.base_model != base_model) {
    return InvalidArgument("incompatible_checkpoint", "path",
                           absl::StrFormat("checkpoint %s is of base model %s, not %s", args.path,
                                           checkpoint.base_model, base_model));
  }
  return std::nullopt;
}

std::optional<ErrorInfo> ResolveLoad(State& s, const Model& model, Request& load) {
  if (auto error = UnknownBaseModel(s, model.row.base_model)) return error;
  const auto& args = std::get<LoadArgs>(load.plan->args);
  const CheckpointRow* const checkpoint =
      FindUsable(s, model.row.tenant_id, args.path, args.reader_tenant_id);
  if (checkpoint == nullptr) return NotFound("checkpoint", args.path);
  if (auto error = CheckLoadable(*checkpoint, args, model.row.base_model)) return error;
  if (auto error = CheckGeometry(*checkpoint, model.row.lora)) return error;
  load.plan->dir = checkpoint->dir;
  PinDir(s, checkpoint->dir);
  return std::nullopt;
}

CheckpointRow CheckpointOf(const State& s, const Model& model, const Request& save) {
  const auto& args = std::get<SaveArgs>(save.plan->args);
  CheckpointRow row;
  row.tinker_path = CheckpointPath(model.row.model_id, KindOf(save), args.name);
  row.model_id = model.row.model_id;
  row.tenant_id = model.row.tenant_id;
  row.kind = KindOf(save);
  row.name = args.name;
  row.dir = SaveDir(save.plan->dir, save.group, s.groups.at(save.group).row.epoch);
  row.base_model = model.row.base_model;
  row.lora = model.row.lora;
  row.applied_seq = model.gradient.applied_seq();
  row.user_metadata = args.user_metadata;
  row.created_at = s.now;
  row.expires_at = args.ttl_seconds > 0 ? s.now + args.ttl_seconds * kSecond : 0;
  return row;
}

void CommitCheckpoint(State& s, CheckpointRow row) {
  const std::string path = row.tinker_path;
  if (s.checkpoints.count(path) > 0) {
    const CheckpointRow replaced = Untrack(s, path);
    row.is_public = replaced.is_public;
    DeleteFilesIfUnused(s, replaced.dir);
  }
  s.fx.Put(PutCheckpoint{row});
  TrackCheckpoint(s, std::move(row));
}

void TrackCheckpoint(State& s, CheckpointRow row) {
  const std::string path = row.tinker_path;
  s.checkpoint_of_dir[row.dir] = path;
  CountStored(s, row, +1);
  RecordSize(s, row);
  ScheduleExpiry(s, row);
  s.checkpoints.emplace(path, std::move(row));
}

void SweepExpiredCheckpoints(State& s) {
  Budget budget(s.options.max_swept);
  while (budget.Take()) {
    const std::optional<std::string> path = s.due_checkpoints.Take(s.now);
    if (!path) return;
    const std::string tenant_id = s.checkpoints.at(*path).tenant_id;
    Remove(s, *path);
    Audit(s, tenant_id, "engine", "checkpoint_expire", *path, "ok");
  }
}

}  // namespace lathe::engine
