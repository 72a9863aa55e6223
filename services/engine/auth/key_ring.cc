#include "services/engine/auth/key_ring.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "libs/common/digest/sha256.h"
#include "libs/common/errors.h"
#include "libs/common/random/random_id.h"
#include "libs/common/status_macros.h"
#include "services/engine/auth/api_key.h"

namespace lathe::engine {
namespace {

constexpr size_t kTenantIdBytes = 8;
constexpr size_t kMaxTenantNameBytes = 64;
constexpr size_t kMaxKeyNameBytes = 128;

absl::Status BadKey() {
  return WithDetail(absl::UnauthenticatedError("the API key is missing or not valid"),
                    "unauthenticated");
}

bool IsTenantName(const std::string& name) {
  return !name.empty() && name.size() <= kMaxTenantNameBytes && name[0] != '.' &&
         name.find_first_not_of(
             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") ==
             std::string::npos;
}

absl::Status CheckNames(const std::string& tenant_name, const std::string& key_name) {
  if (!IsTenantName(tenant_name)) {
    return WithDetail(
        absl::InvalidArgumentError(absl::StrFormat(
            "tenant is '%s', expected 1 to %d of A-Z a-z 0-9 . _ - without a leading dot",
            tenant_name, kMaxTenantNameBytes)),
        "bad_name", "tenant");
  }
  if (key_name.size() > kMaxKeyNameBytes) {
    return WithDetail(absl::InvalidArgumentError(absl::StrFormat(
                          "name has %d bytes, limit is %d", key_name.size(), kMaxKeyNameBytes)),
                      "bad_name", "name");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status KeyRing::Refresh() {
  ASSIGN_OR_RETURN(std::vector<TenantRow> tenants, store_.ListTenants());
  ASSIGN_OR_RETURN(std::vector<ApiKeyRow> keys, store_.ListKeys());
  auto fresh = std::make_shared<Snapshot>();
  for (TenantRow& row : tenants) fresh->tenant_names.emplace(row.tenant_id, std::move(row.name));
  for (ApiKeyRow& row : keys) {
    std::string key_id = row.key_id;
    fresh->keys.emplace(std::move(key_id), std::move(row));
  }
  absl::MutexLock lock(&mu_);
  snapshot_ = std::move(fresh);
  return absl::OkStatus();
}

std::shared_ptr<const KeyRing::Snapshot> KeyRing::snapshot() const {
  absl::MutexLock lock(&mu_);
  return snapshot_;
}

absl::StatusOr<Caller> KeyRing::Authenticate(std::string_view key) const {
  const std::optional<std::string> key_id = ParseKeyId(key);
  if (!key_id) return BadKey();
  const std::shared_ptr<const Snapshot> known = snapshot();
  const auto found = known->keys.find(*key_id);
  // An unknown id costs as much as a wrong secret.
  const std::string digest = Sha256Hex(key);
  if (found == known->keys.end()) return BadKey();
  const ApiKeyRow& row = found->second;
  const bool is_live = row.revoked_at == 0 &&
                       (row.expires_at == 0 || row.expires_at > absl::ToUnixNanos(clock_.Now()));
  if (!EqualInConstantTime(digest, row.secret_sha256) || !is_live) return BadKey();
  ASSIGN_OR_RETURN(const Scopes scopes, Scopes::Parse(row.scopes));
  const auto name = known->tenant_names.find(row.tenant_id);
  return Caller{.tenant_id = row.tenant_id,
                .tenant_name = name == known->tenant_names.end() ? "" : name->second,
                .scopes = scopes};
}

absl::StatusOr<std::string> KeyRing::FindOrMakeTenant(const std::string& name) {
  for (const auto& [tenant_id, tenant_name] : snapshot()->tenant_names) {
    if (tenant_name == name) return tenant_id;
  }
  const TenantRow row{.tenant_id = RandomId(kTenantIdBytes),
                      .name = name,
                      .created_at = absl::ToUnixNanos(clock_.Now())};
  RETURN_IF_ERROR(store_.PutTenant(row));
  return row.tenant_id;
}

absl::StatusOr<KeyRing::NewKey> KeyRing::Create(const std::string& tenant_name,
                                                const std::string& key_name,
                                                const std::vector<std::string>& scopes) {
  RETURN_IF_ERROR(CheckNames(tenant_name, key_name));
  ASSIGN_OR_RETURN(Scopes parsed, Scopes::Parse(scopes));
  if (scopes.empty()) {
    parsed =
        Scope::kTrain | Scope::kSample | Scopes(Scope::kRead) | Scopes(Scope::kCheckpointsWrite);
  }
  ASSIGN_OR_RETURN(const std::string tenant_id, FindOrMakeTenant(tenant_name));
  const ApiKeyText key = MakeApiKey();
  RETURN_IF_ERROR(store_.PutKey({.key_id = key.key_id,
                                 .tenant_id = tenant_id,
                                 .name = key_name,
                                 .secret_sha256 = Sha256Hex(key.text),
                                 .scopes = parsed.Words(),
                                 .created_at = absl::ToUnixNanos(clock_.Now())}));
  RETURN_IF_ERROR(Refresh());
  return NewKey{.key_id = key.key_id, .text = key.text};
}

absl::Status KeyRing::Revoke(const std::string& key_id) {
  const std::shared_ptr<const Snapshot> known = snapshot();
  const auto found = known->keys.find(key_id);
  if (found == known->keys.end()) {
    return WithDetail(absl::NotFoundError(absl::StrFormat("key '%s' does not exist", key_id)),
                      "not_found", "key_id");
  }
  if (found->second.revoked_at != 0) return absl::OkStatus();
  ApiKeyRow row = found->second;
  row.revoked_at = absl::ToUnixNanos(clock_.Now());
  RETURN_IF_ERROR(store_.PutKey(row));
  return Refresh();
}

std::vector<KeyRing::ListedKey> KeyRing::List() const {
  const std::shared_ptr<const Snapshot> known = snapshot();
  std::vector<ListedKey> keys;
  for (const auto& [key_id, row] : known->keys) {
    const auto name = known->tenant_names.find(row.tenant_id);
    keys.push_back({row, name == known->tenant_names.end() ? "" : name->second});
  }
  return keys;
}

std::string KeyRing::TenantName(const std::string& tenant_id) const {
  const std::shared_ptr<const Snapshot> known = snapshot();
  const auto name = known->tenant_names.find(tenant_id);
  return name == known->tenant_names.end() ? "" : name->second;
}

}  // namespace lathe::engine
