#include "services/engine/rpc/tenants_service.h"

#include <algorithm>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/civil_time.h"
#include "absl/time/time.h"
#include "libs/common/logging/logging.h"
#include "libs/common/status_macros.h"
#include "services/engine/rpc/authenticated_call.h"
#include "services/engine/rpc/row_convert.h"
#include "services/engine/rpc/validate_names.h"
#include "services/engine/rpc/validation.h"

namespace lathe::engine {
namespace {

constexpr size_t kMaxAuditEntries = 10'000;
constexpr size_t kMaxObjectBytes = 256;
// Ended keys stay in the store and in memory, so they count too.
constexpr size_t kMaxKeysPerTenant = 10'000;

// Returns the resource as stored; "" for all.
absl::StatusOr<std::string> ResourceOf(const std::string& event_type) {
  if (event_type.empty() || event_type == "all") return "";
  for (const char* known : {"checkpoints", "projects", "teams", "organizations"}) {
    if (event_type == known) return event_type;
  }
  return Invalid("invalid_field", "event_type",
                 absl::StrFormat("event_type is '%s', expected all, checkpoints, projects, teams "
                                 "or organizations",
                                 event_type.substr(0, 64)));
}

absl::StatusOr<absl::CivilDay> DayOf(const std::string& text, absl::Time now) {
  if (text.empty()) return absl::ToCivilDay(now, absl::UTCTimeZone());
  absl::CivilDay day;
  if (text.size() == 10 && absl::ParseCivilTime(text, &day)) return day;
  return Invalid("invalid_field", "day",
                 absl::StrFormat("day is '%s', expected YYYY-MM-DD", text.substr(0, 64)));
}

int64_t NanosOf(absl::CivilDay day) {
  return absl::ToUnixNanos(absl::FromCivil(day, absl::UTCTimeZone()));
}

// Returns OK if the caller may make, rotate and revoke keys with the scopes `held`.
absl::Status CheckMayHold(const Caller& caller, Scopes held) {
  if (!held.HasAny(Scope::kOperator) || caller.scopes.HasAny(Scope::kOperator)) {
    return absl::OkStatus();
  }
  return WithDetail(
      absl::PermissionDeniedError(
          "a key with the scope operator is made, rotated and revoked by one with this scope"),
      "missing_scope", "scopes");
}

// Returns OK if the caller's tenant may have one more key.
absl::Status CheckRoom(const std::vector<KeyRing::ListedKey>& keys, const Caller& caller) {
  const auto count = static_cast<size_t>(std::ranges::count(
      keys, caller.tenant_id, [](const KeyRing::ListedKey& key) { return key.row.tenant_id; }));
  if (count < kMaxKeysPerTenant) return absl::OkStatus();
  return WithDetail(absl::PermissionDeniedError(absl::StrFormat(
                        "the tenant has %d keys with those that ended, limit is %d; an operator "
                        "may exceed it",
                        count, kMaxKeysPerTenant)),
                    "key_quota");
}

}  // namespace

TenantsService::TenantsService(Runtime& runtime, KeyRing& keys, ReadThreads& reads)
    : runtime_(runtime), keys_(keys), reads_(reads) {}

TenantsService::~TenantsService() = default;

TenantsService::Reactor* TenantsService::GetOwnKey(Context* context, const v1::GetOwnKeyRequest*,
                                                   v1::GetOwnKeyResponse* response) {
  return AnswerCall(keys_, context, "Tenants.GetOwnKey", [&](const Caller& caller) -> absl::Status {
    ASSIGN_OR_RETURN(const ApiKeyRow row, keys_.Find(caller.key_id));
    response->set_key_id(row.key_id);
    response->set_name(row.name);
    response->set_tenant(caller.tenant_name);
    response->mutable_scopes()->Assign(row.scopes.begin(), row.scopes.end());
    *response->mutable_created_at() = ToTimestamp(row.created_at);
    if (row.expires_at != 0) *response->mutable_expires_at() = ToTimestamp(row.expires_at);
    return absl::OkStatus();
  });
}

TenantsService::Reactor* TenantsService::RevokeOwnKey(Context* context,
                                                      const v1::RevokeOwnKeyRequest*,
                                                      v1::RevokeOwnKeyResponse*) {
  // Not on the threads for reads: a flood of reads must not hold up a revocation.
  return AnswerCall(keys_, context, "Tenants.RevokeOwnKey", [&](const Caller& caller) {
    return keys_.Revoke(caller.key_id, /*actor=*/caller.key_id);
  });
}

TenantsService::Reactor* TenantsService::ExchangeToken(Context* context,
                                                       const v1::ExchangeTokenRequest*,
                                                       v1::ExchangeTokenResponse* response) {
  return AnswerCall(
      keys_, context, "Tenants.ExchangeToken", [&](const Caller& caller) -> absl::Status {
        ASSIGN_OR_RETURN(const TokenSigner::Token token, keys_.IssueToken(caller));
        response->set_jwt(token.jwt);
        *response->mutable_expires_at() = ToTimestamp(absl::ToUnixNanos(token.expires_at));
        return absl::OkStatus();
      });
}

TenantsService::Reactor* TenantsService::ListAudit(Context* context,
                                                   const v1::ListAuditRequest* request,
                                                   v1::ListAuditResponse* response) {
  return ReadCall(reads_, keys_, context, "Tenants.ListAudit",
                  [this, request, response](const Caller& caller) {
                    return DescribeAudit(caller, *request, *response);
                  });
}

absl::Status TenantsService::DescribeAudit(const Caller& caller,
                                           const v1::ListAuditRequest& request,
                                           v1::ListAuditResponse& response) {
  ASSIGN_OR_RETURN(const std::string tenant_id, keys_.TenantFor(caller, request.tenant()));
  ASSIGN_OR_RETURN(const std::string resource, ResourceOf(request.event_type()));
  ASSIGN_OR_RETURN(const absl::CivilDay day, DayOf(request.day(), runtime_.clock().Now()));
  ASSIGN_OR_RETURN(PageBounds page, ValidatePage(request.limit(), request.offset()));
  if (request.limit() == 0) page.limit = kMaxAuditEntries;
  if (request.object().size() > kMaxObjectBytes) {
    return Invalid("invalid_field", "object",
                   absl::StrFormat("object has %d bytes, limit is %d", request.object().size(),
                                   kMaxObjectBytes));
  }
  ASSIGN_OR_RETURN(std::vector<AuditRow> rows,
                   runtime_.store().ListAudit(tenant_id, resource, NanosOf(day), NanosOf(day + 1),
                                              kMaxAuditEntries + 1));
  response.set_is_cut(rows.size() > kMaxAuditEntries);
  if (response.is_cut()) rows.erase(rows.begin());
  std::erase_if(rows, [&](const AuditRow& row) {
    return (!request.actor().empty() && row.actor != request.actor()) ||
           row.object.find(request.object()) == std::string::npos;
  });
  response.set_total_count(static_cast<int64_t>(rows.size()));
  std::ranges::reverse(rows);
  const std::span<const AuditRow> shown = PageOf(rows, page);
  for (auto row = shown.rbegin(); row != shown.rend(); ++row) {
    *response.add_entries() = ToProto(*row);
  }
  return absl::OkStatus();
}

absl::Status TenantsService::DescribeKeys(const Caller& caller,
                                          const v1::ListTenantKeysRequest& request,
                                          v1::ListTenantKeysResponse& response) {
  const bool is_operator = caller.scopes.HasAny(Scope::kOperator);
  ASSIGN_OR_RETURN(const PageBounds page, ValidatePage(request.limit(), request.offset()));
  ASSIGN_OR_RETURN(const std::string tenant_id, keys_.TenantFor(caller, request.tenant()));
  const bool is_of_all = is_operator && request.tenant().empty();
  std::vector<KeyRing::ListedKey> keys = keys_.List();
  std::erase_if(keys, [&](const KeyRing::ListedKey& key) {
    return (!is_of_all && key.row.tenant_id != tenant_id) ||
           (!request.with_ended() && !key.is_live);
  });
  std::ranges::sort(keys, std::greater(), [](const KeyRing::ListedKey& key) {
    return std::pair(key.row.created_at, key.row.key_id);
  });
  response.set_total_count(static_cast<int64_t>(keys.size()));
  for (const KeyRing::ListedKey& key : PageOf(keys, page)) *response.add_keys() = ToProto(key);
  return absl::OkStatus();
}

TenantsService::Reactor* TenantsService::ListTenantKeys(Context* context,
                                                        const v1::ListTenantKeysRequest* request,
                                                        v1::ListTenantKeysResponse* response) {
  // They are in memory, but there may be many.
  return ReadCall(reads_, keys_, context, "Tenants.ListTenantKeys",
                  [this, request, response](const Caller& caller) {
                    return DescribeKeys(caller, *request, *response);
                  });
}

absl::Status TenantsService::MakeKey(const Caller& caller, const v1::CreateKeyRequest& request,
                                     v1::CreateKeyResponse& response) {
  const std::string& tenant = request.tenant().empty() ? caller.tenant_name : request.tenant();
  const std::vector<std::string> scopes(request.scopes().begin(), request.scopes().end());
  const bool is_operator = caller.scopes.HasAny(Scope::kOperator);
  ASSIGN_OR_RETURN(const Scopes wanted, Scopes::Parse(scopes));
  if (!is_operator) {
    RETURN_IF_ERROR(keys_.TenantFor(caller, tenant).status());
    RETURN_IF_ERROR(CheckMayHold(caller, wanted));
    RETURN_IF_ERROR(CheckRoom(keys_.List(), caller));
  }
  ASSIGN_OR_RETURN(
      const KeyRing::NewKey key,
      keys_.Create(tenant, request.name(), scopes,
                   request.has_expires_in_seconds() ? absl::Seconds(request.expires_in_seconds())
                                                    : absl::InfiniteDuration(),
                   caller.key_id));
  LogInfo("key created", {{"key_id", key.key_id}, {"tenant", tenant}, {"actor", caller.key_id}});
  SetNewKey(key, &response);
  return absl::OkStatus();
}

TenantsService::Reactor* TenantsService::CreateTenantKey(Context* context,
                                                         const v1::CreateKeyRequest* request,
                                                         v1::CreateKeyResponse* response) {
  return ReadCall(reads_, keys_, context, "Tenants.CreateTenantKey",
                  [this, request, response](const Caller& caller) {
                    return MakeKey(caller, *request, *response);
                  });
}

absl::Status TenantsService::CheckAdministers(const Caller& caller,
                                              const std::string& key_id) const {
  ASSIGN_OR_RETURN(const ApiKeyRow row, keys_.Find(key_id));
  const bool is_operator = caller.scopes.HasAny(Scope::kOperator);
  if (!is_operator && row.tenant_id != caller.tenant_id) return KeyRing::NoSuchKey(key_id);
  ASSIGN_OR_RETURN(const Scopes held, Scopes::Parse(row.scopes));
  return CheckMayHold(caller, held);
}

TenantsService::Reactor* TenantsService::RevokeTenantKey(Context* context,
                                                         const v1::RevokeKeyRequest* request,
                                                         v1::RevokeKeyResponse*) {
  return ReadCall(
      revocations_, keys_, context, "Tenants.RevokeTenantKey",
      [this, request](const Caller& caller) -> absl::Status {
        RETURN_IF_ERROR(CheckAdministers(caller, request->key_id()));
        RETURN_IF_ERROR(keys_.Revoke(request->key_id(), caller.key_id));
        LogInfo("key revoked", {{"key_id", request->key_id()}, {"actor", caller.key_id}});
        return absl::OkStatus();
      });
}

TenantsService::Reactor* TenantsService::RotateTenantKey(Context* context,
                                                         const v1::RotateKeyRequest* request,
                                                         v1::RotateKeyResponse* response) {
  return ReadCall(
      reads_, keys_, context, "Tenants.RotateTenantKey",
      [this, request, response](const Caller& caller) -> absl::Status {
        RETURN_IF_ERROR(CheckAdministers(caller, request->key_id()));
        if (!caller.scopes.HasAny(Scope::kOperator)) {
          RETURN_IF_ERROR(CheckRoom(keys_.List(), caller));
        }
        ASSIGN_OR_RETURN(const KeyRing::NewKey key,
                         keys_.Rotate(request->key_id(), absl::Seconds(request->overlap_seconds()),
                                      caller.key_id));
        LogInfo(
            "key rotated",
            {{"key_id", request->key_id()}, {"new_key_id", key.key_id}, {"actor", caller.key_id}});
        SetNewKey(key, response);
        return absl::OkStatus();
      });
}

TenantsService::Reactor* TenantsService::ListTenants(Context* context,
                                                     const v1::ListTenantsRequest* request,
                                                     v1::ListTenantsResponse* response) {
  return ReadCall(
      reads_, keys_, context, "Tenants.ListTenants",
      [this, request, response](const Caller& caller) -> absl::Status {
        ASSIGN_OR_RETURN(const PageBounds page, ValidatePage(request->limit(), request->offset()));
        ASSIGN_OR_RETURN(std::vector<TenantRow> tenants, runtime_.store().ListTenants());
        if (!caller.scopes.HasAny(Scope::kOperator)) {
          std::erase_if(tenants,
                        [&](const TenantRow& row) { return row.tenant_id != caller.tenant_id; });
        }
        std::ranges::sort(tenants, {}, &TenantRow::name);
        ASSIGN_OR_RETURN(*response, DescribeTenants(runtime_, PageOf(tenants, page)));
        response->set_total_count(static_cast<int64_t>(tenants.size()));
        return absl::OkStatus();
      });
}

TenantsService::Reactor* TenantsService::SetTenantQuota(Context* context,
                                                        const v1::SetQuotaRequest* request,
                                                        v1::SetQuotaResponse* response) {
  return ChangeCall<engine::SetQuota>(
      runtime_, keys_, context, "Tenants.SetTenantQuota",
      [&](const Caller& caller) -> absl::StatusOr<engine::SetQuota> {
        ASSIGN_OR_RETURN(const std::string tenant_id, keys_.TenantId(request->tenant()));
        ASSIGN_OR_RETURN(engine::SetQuota change,
                         PlanQuota(runtime_, tenant_id, *request, caller.key_id));
        *response->mutable_quota() = EffectiveQuota(runtime_, change.row);
        return change;
      },
      [](const Answer&) {});
}

}  // namespace lathe::engine
