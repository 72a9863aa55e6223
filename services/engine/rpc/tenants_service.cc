#include "services/engine/rpc/tenants_service.h"

#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/civil_time.h"
#include "absl/time/time.h"
#include "libs/common/status_macros.h"
#include "services/engine/rpc/authenticated_call.h"
#include "services/engine/rpc/row_convert.h"
#include "services/engine/rpc/validation.h"

namespace lathe::engine {
namespace {

constexpr int64_t kMaxAuditEntries = 10'000;

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
  return ReadCall(
      reads_, keys_, context, "Tenants.ListAudit",
      [this, request, response](const Caller& caller) -> absl::Status {
        ASSIGN_OR_RETURN(const std::string resource, ResourceOf(request->event_type()));
        ASSIGN_OR_RETURN(const absl::CivilDay day, DayOf(request->day(), runtime_.clock().Now()));
        ASSIGN_OR_RETURN(const std::vector<AuditRow> rows,
                         runtime_.store().ListAudit(caller.tenant_id, resource, NanosOf(day),
                                                    NanosOf(day + 1), kMaxAuditEntries));
        for (const AuditRow& row : rows) *response->add_entries() = ToProto(row);
        return absl::OkStatus();
      });
}

}  // namespace lathe::engine
