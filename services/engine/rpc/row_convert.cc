#include "services/engine/rpc/row_convert.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libs/common/status_macros.h"
#include "services/engine/core/requests/quotas.h"
#include "services/engine/rpc/checkpoint_files.h"
#include "services/engine/rpc/validation.h"

namespace lathe::engine {

namespace {

constexpr int64_t kNanosPerSecond = 1'000'000'000;

struct KindNames {
  const char* folder;
  const char* type;
};

KindNames NamesOf(CheckpointKind kind) {
  switch (kind) {
    case CheckpointKind::kTraining:
      return {"weights", "training"};
    case CheckpointKind::kSampler:
      return {"sampler_weights", "sampler"};
    case CheckpointKind::kExternal:
      break;
  }
  return {"external_weights", "external"};
}

}  // namespace

google::protobuf::Timestamp ToTimestamp(int64_t nanos) {
  google::protobuf::Timestamp proto;
  proto.set_seconds(nanos / kNanosPerSecond);
  proto.set_nanos(static_cast<int32_t>(nanos % kNanosPerSecond));
  return proto;
}

int64_t ToNanos(const google::protobuf::Timestamp& proto) {
  constexpr int64_t kMaxSeconds = std::numeric_limits<int64_t>::max() / kNanosPerSecond - 1;
  const bool fits = proto.seconds() >= 0 && proto.seconds() <= kMaxSeconds && proto.nanos() >= 0 &&
                    proto.nanos() < kNanosPerSecond;
  return fits ? proto.seconds() * kNanosPerSecond + proto.nanos() : -1;
}

void SetMetadata(const Metadata& metadata,
                 google::protobuf::RepeatedPtrField<v1::NamedString>* proto) {
  for (const auto& [name, value] : metadata) {
    v1::NamedString* entry = proto->Add();
    entry->set_name(name);
    entry->set_value(value);
  }
}

v1::Checkpoint ToProto(const CheckpointRow& row, CheckpointDirs& dirs) {
  const KindNames names = NamesOf(row.kind);
  v1::Checkpoint proto;
  proto.set_checkpoint_id(absl::StrCat(names.folder, "/", row.name));
  proto.set_checkpoint_type(names.type);
  *proto.mutable_time() = ToTimestamp(row.created_at);
  proto.set_tinker_path(row.tinker_path);
  proto.set_size_bytes(row.size_bytes);
  proto.set_public_(row.is_public);
  SetMetadata(row.user_metadata, proto.mutable_user_metadata());
  if (row.expires_at != 0) *proto.mutable_expires_at() = ToTimestamp(row.expires_at);
  proto.set_missing(dirs.AreFilesMissing(row));
  return proto;
}

v1::Run ToProto(const ModelRow& row, const std::string& owner_name) {
  v1::Run proto;
  proto.set_training_run_id(row.model_id);
  proto.set_base_model(row.base_model);
  proto.set_model_owner(owner_name);
  proto.set_is_lora(true);
  proto.set_lora_rank(row.lora.rank);
  *proto.mutable_last_request_time() =
      ToTimestamp(row.last_request_at != 0 ? row.last_request_at : row.created_at);
  proto.set_corrupted(row.state == ModelState::kLost);
  SetMetadata(row.user_metadata, proto.mutable_user_metadata());
  return proto;
}

v1::ServedModel ToProto(const BaseModelRow& row) {
  v1::ServedModel proto;
  proto.set_name(row.name);
  proto.set_max_context_length(row.max_context_length);
  proto.set_trainable(true);
  proto.set_sampleable(true);
  proto.set_tokenizer_id(row.tokenizer_id);
  proto.set_max_lora_rank(row.max_lora_rank);
  return proto;
}

absl::StatusOr<v1::Run> DescribeRun(Runtime& runtime, const Caller& caller, const ModelRow& row) {
  ASSIGN_OR_RETURN(v1::ListRunsResponse one,
                   DescribeRuns(runtime, caller, {.rows = {row}, .total_count = 1}));
  return std::move(*one.mutable_runs(0));
}

absl::StatusOr<v1::ListRunsResponse> DescribeRuns(Runtime& runtime, const Caller& caller,
                                                  const Page<ModelRow>& page) {
  v1::ListRunsResponse response;
  std::vector<std::string> ids;
  std::unordered_map<std::string, v1::Run*> runs;
  for (const ModelRow& row : page.rows) {
    ids.push_back(row.model_id);
    v1::Run* const run = response.add_runs();
    *run = ToProto(row, caller.tenant_name);
    runs[row.model_id] = run;
  }
  ASSIGN_OR_RETURN(const std::vector<CheckpointRow> newest,
                   runtime.store().NewestCheckpoints(caller.tenant_id, ids, runtime.NowNanos()));
  for (const CheckpointRow& row : newest) {
    v1::Run& run = *runs.at(row.model_id);
    *(row.kind == CheckpointKind::kTraining ? run.mutable_last_checkpoint()
                                            : run.mutable_last_sampler_checkpoint()) =
        ToProto(row, runtime.checkpoint_dirs());
  }
  response.set_total_count(page.total_count);
  return response;
}

namespace {

absl::Status Set(bool is_given, int64_t value, const char* name, int64_t& field) {
  if (!is_given) return absl::OkStatus();
  if (value < 0) {
    return Invalid("invalid_field", name,
                   absl::StrFormat("%s is %d, expected 0 (no limit) or more", name, value));
  }
  field = value;
  return absl::OkStatus();
}

}  // namespace

v1::AuditEntry ToProto(const AuditRow& row) {
  v1::AuditEntry entry;
  *entry.mutable_at() = ToTimestamp(row.at);
  entry.set_event(row.event);
  entry.set_actor(row.actor);
  entry.set_object(row.object);
  entry.set_outcome(row.outcome);
  SetMetadata(row.details, entry.mutable_details());
  return entry;
}

v1::Quota ToProto(const QuotaRow& row) {
  v1::Quota quota;
  quota.set_requests_per_minute(row.requests_per_minute);
  quota.set_tokens_per_minute(row.tokens_per_minute);
  quota.set_queued_bytes(row.queued_bytes);
  quota.set_stored_bytes(row.stored_bytes);
  quota.set_adapters(row.adapters);
  quota.set_sessions(row.sessions);
  quota.set_samplers(row.samplers);
  quota.set_unfetched_results(row.unfetched_results);
  quota.set_unfetched_bytes(row.unfetched_bytes);
  return quota;
}

absl::StatusOr<QuotaRow> WithQuota(QuotaRow row, const v1::Quota& quota) {
  RETURN_IF_ERROR(Set(quota.has_requests_per_minute(), quota.requests_per_minute(),
                      "requests_per_minute", row.requests_per_minute));
  RETURN_IF_ERROR(Set(quota.has_tokens_per_minute(), quota.tokens_per_minute(), "tokens_per_minute",
                      row.tokens_per_minute));
  RETURN_IF_ERROR(
      Set(quota.has_queued_bytes(), quota.queued_bytes(), "queued_bytes", row.queued_bytes));
  RETURN_IF_ERROR(
      Set(quota.has_stored_bytes(), quota.stored_bytes(), "stored_bytes", row.stored_bytes));
  RETURN_IF_ERROR(Set(quota.has_adapters(), quota.adapters(), "adapters", row.adapters));
  RETURN_IF_ERROR(Set(quota.has_sessions(), quota.sessions(), "sessions", row.sessions));
  RETURN_IF_ERROR(Set(quota.has_samplers(), quota.samplers(), "samplers", row.samplers));
  RETURN_IF_ERROR(Set(quota.has_unfetched_results(), quota.unfetched_results(), "unfetched_results",
                      row.unfetched_results));
  RETURN_IF_ERROR(Set(quota.has_unfetched_bytes(), quota.unfetched_bytes(), "unfetched_bytes",
                      row.unfetched_bytes));
  return row;
}

v1::ApiKeyInfo ToProto(const KeyRing::ListedKey& key) {
  v1::ApiKeyInfo proto;
  proto.set_key_id(key.row.key_id);
  proto.set_tenant(key.tenant_name);
  proto.set_name(key.row.name);
  proto.mutable_scopes()->Assign(key.row.scopes.begin(), key.row.scopes.end());
  *proto.mutable_created_at() = ToTimestamp(key.row.created_at);
  proto.set_revoked(key.row.revoked_at != 0);
  if (key.row.expires_at != 0) *proto.mutable_expires_at() = ToTimestamp(key.row.expires_at);
  return proto;
}

v1::Quota EffectiveQuota(const Runtime& runtime, const QuotaRow& row) {
  return ToProto(WithDefaults(row, runtime.core_options()));
}

absl::StatusOr<v1::ListTenantsResponse> DescribeTenants(Runtime& runtime,
                                                        std::span<const TenantRow> tenants) {
  v1::ListTenantsResponse response;
  for (const TenantRow& row : tenants) {
    v1::TenantInfo* const tenant = response.add_tenants();
    tenant->set_name(row.name);
    *tenant->mutable_created_at() = ToTimestamp(row.created_at);
    *tenant->mutable_quota() = EffectiveQuota(runtime, runtime.directory().QuotaOf(row.tenant_id));
    tenant->set_adapters(runtime.directory().CountLiveModelsOf(row.tenant_id));
    const TenantUsage usage = runtime.tenant_rooms().UsageOf(row.tenant_id);
    tenant->set_sessions(usage.sessions);
    tenant->set_samplers(usage.samplers);
    tenant->set_unfetched_results(usage.unfetched_results);
    tenant->set_unfetched_bytes(usage.unfetched_bytes);
    ASSIGN_OR_RETURN(const int64_t stored_bytes, runtime.store().StoredBytes(row.tenant_id));
    tenant->set_stored_bytes(stored_bytes);
  }
  return response;
}

absl::StatusOr<SetQuota> PlanQuota(Runtime& runtime, const std::string& tenant_id,
                                   const v1::SetQuotaRequest& request, const std::string& actor) {
  ASSIGN_OR_RETURN(const QuotaRow row,
                   WithQuota(runtime.directory().QuotaOf(tenant_id), request.quota()));
  return SetQuota{.row = row, .tenant_name = request.tenant(), .actor = actor};
}

}  // namespace lathe::engine
