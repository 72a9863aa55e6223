// Conversion of the store's rows to messages, and of session searches to queries.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "google/protobuf/timestamp.pb.h"
#include "protos/lathe/v1/accounts.pb.h"
#include "protos/lathe/v1/admin.pb.h"
#include "protos/lathe/v1/engine.pb.h"
#include "services/engine/auth/key_ring.h"
#include "services/engine/runtime/runtime.h"
#include "services/engine/store/rows.h"
#include "services/engine/store/store.h"

namespace lathe::engine {

google::protobuf::Timestamp ToTimestamp(int64_t nanos);
// Returns nanoseconds since 1970. The result is below 0 if the time is earlier or overflows 64
// bits.
int64_t ToNanos(const google::protobuf::Timestamp& proto);

void SetMetadata(const Metadata& metadata,
                 google::protobuf::RepeatedPtrField<v1::NamedString>* proto);

// Fills the fields of a response that describes an adapter.
template <typename Response>
void SetLora(const LoraConfig& lora, Response* response) {
  response->set_lora_rank(lora.rank);
  response->set_train_attn(lora.train_attn);
  response->set_train_mlp(lora.train_mlp);
  response->set_train_unembed(lora.train_unembed);
  response->set_lora_alpha(lora.alpha);
  response->mutable_target_modules()->Assign(lora.target_modules.begin(),
                                             lora.target_modules.end());
}

// `dirs` has the checkpoint's files. The conversion asks if they still exist.
v1::Checkpoint ToProto(const CheckpointRow& row, CheckpointDirs& dirs);

// The checkpoints of the run are not set.
v1::Run ToProto(const ModelRow& row, const std::string& owner_name);

v1::ServedModel ToProto(const BaseModelRow& row);

// Describes one run. `row` must belong to the caller's tenant.
absl::StatusOr<v1::Run> DescribeRun(Runtime& runtime, const Caller& caller, const ModelRow& row);

// Describes a page of runs.
absl::StatusOr<v1::ListRunsResponse> DescribeRuns(Runtime& runtime, const Caller& caller,
                                                  const Page<ModelRow>& page);

v1::Quota ToProto(const QuotaRow& row);
v1::AuditEntry ToProto(const AuditRow& row);
v1::ApiKeyInfo ToProto(const KeyRing::ListedKey& key);

// Fills the response to a call that made a key.
template <typename Response>
void SetNewKey(const KeyRing::NewKey& key, Response* response) {
  response->set_key_id(key.key_id);
  response->set_api_key(key.text);
  if (key.expires_at != 0) *response->mutable_expires_at() = ToTimestamp(key.expires_at);
}

// Returns the limits that hold, the engine's defaults included.
v1::Quota EffectiveQuota(const Runtime& runtime, const QuotaRow& row);
// Describes `tenants` with their quotas and current use.
absl::StatusOr<v1::ListTenantsResponse> DescribeTenants(Runtime& runtime,
                                                        std::span<const TenantRow> tenants);
// Returns the event that sets the quota of a tenant for `actor`, a key's id; empty: a person at
// this machine. Errors as WithQuota.
absl::StatusOr<SetQuota> PlanQuota(Runtime& runtime, const std::string& tenant_id,
                                   const v1::SetQuotaRequest& request, const std::string& actor);

// Returns `row` with the fields that `quota` sets. InvalidArgument: a value is negative.
absl::StatusOr<QuotaRow> WithQuota(QuotaRow row, const v1::Quota& quota);

// Validates a request and converts it to a query with the page's limit and the cursor's position as
// given. InvalidArgument names the invalid field.
absl::StatusOr<SessionQuery> ToQuery(const v1::SearchSessionsRequest& request);

// Returns true if the request's owner condition matches `owner`, the only owner that can be found.
bool AsksFor(const v1::SearchSessionsRequest& request, const std::string& owner);

v1::SessionSummary ToSummary(const SessionRow& row, const StoredUse& use, const std::string& owner);

}  // namespace lathe::engine
