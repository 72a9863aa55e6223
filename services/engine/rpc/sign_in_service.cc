#include "services/engine/rpc/sign_in_service.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libs/common/rpc/status.h"
#include "libs/common/status_macros.h"
#include "services/engine/rpc/authenticated_call.h"
#include "services/engine/rpc/row_convert.h"
#include "services/engine/rpc/validation.h"

namespace lathe::engine {
namespace {

// Takes turns with the tenants. No tenant has this id.
constexpr char kSignIns[] = "sign_in";
constexpr char kDefaultTenant[] = "default";
constexpr size_t kMaxIssuerBytes = 512;
constexpr size_t kMaxSubjectBytes = 255;
constexpr int kMaxClaims = 64;
constexpr int kMaxClaimValues = 1000;
constexpr absl::Duration kSealingPeriod = absl::Hours(30 * 24);

absl::Status CheckText(const char* field, const std::string& text, size_t max_bytes) {
  if (!text.empty() && text.size() <= max_bytes && text.find('\0') == text.npos) {
    return absl::OkStatus();
  }
  return Invalid("invalid_field", field,
                 absl::StrFormat("%s has %d bytes, expected 1 to %d without zero bytes", field,
                                 text.size(), max_bytes));
}

Browser BrowserOf(const v1::BrowserInfo& info) {
  return {.user_agent = info.user_agent(), .ip_prefix = info.ip_prefix()};
}

absl::StatusOr<Identity> IdentityOf(const v1::BeginUserSessionRequest& request) {
  RETURN_IF_ERROR(CheckText("issuer", request.issuer(), kMaxIssuerBytes));
  RETURN_IF_ERROR(CheckText("subject", request.subject(), kMaxSubjectBytes));
  if (request.claims_size() > kMaxClaims) {
    return Invalid(
        "invalid_field", "claims",
        absl::StrFormat("claims has %d entries, limit is %d", request.claims_size(), kMaxClaims));
  }
  Identity identity{.issuer = request.issuer(),
                    .subject = request.subject(),
                    .name = request.name(),
                    .email = request.email(),
                    .is_email_verified = request.email_verified(),
                    .claims = {}};
  int num_values = 0;
  for (const v1::Claim& claim : request.claims()) {
    num_values += claim.values_size();
    identity.claims[claim.name()] = {claim.values().begin(), claim.values().end()};
  }
  if (num_values > kMaxClaimValues) {
    return Invalid(
        "invalid_field", "claims",
        absl::StrFormat("claims has %d values, limit is %d", num_values, kMaxClaimValues));
  }
  return identity;
}

absl::Status Fill(const absl::StatusOr<UserBook::NewSession>& session,
                  v1::BeginSessionResponse* response) {
  if (!session.ok()) return session.status();
  response->set_user_session(session->text);
  *response->mutable_expires_at() = ToTimestamp(session->row.expires_at);
  return absl::OkStatus();
}

}  // namespace

SignInService::Reactor* SignInService::Serve(Context* context, std::function<absl::Status()> work) {
  Reactor* const reactor = context->DefaultReactor();
  if (const absl::Status status = CheckPeer(keys_, *context); !status.ok()) {
    reactor->Finish(ToGrpcStatus(status));
  } else {
    RunRead(reads_, kSignIns, reactor, std::move(work));
  }
  return reactor;
}

absl::StatusOr<UserBook::NewSession> SignInService::BeginForUser(
    const v1::BeginUserSessionRequest& request) {
  ASSIGN_OR_RETURN(const Identity identity, IdentityOf(request));
  UserBook& users = keys_.users();
  const RoleRule* const rule = users.role_map().Find(identity);
  if (rule == nullptr) {
    // A stranger belongs to no tenant. The log of the operator's tenant has the entry.
    ASSIGN_OR_RETURN(const std::string tenant_id, keys_.FindOrMakeTenant(kDefaultTenant));
    users.RecordRefusal(identity, tenant_id, "unmapped");
    return WithDetail(
        absl::PermissionDeniedError(absl::StrFormat(
            "auth.role_map has no line for the user with the subject '%s'", identity.subject)),
        "unmapped");
  }
  ASSIGN_OR_RETURN(const std::string tenant_id, keys_.FindOrMakeTenant(rule->tenant));
  absl::StatusOr<UserBook::NewSession> session =
      users.BeginForUser(identity, rule->role, tenant_id, BrowserOf(request.browser()));
  if (absl::IsPermissionDenied(session.status())) {
    users.RecordRefusal(identity, tenant_id, ErrorCode(session.status()));
  }
  return session;
}

SignInService::Reactor* SignInService::BeginUserSession(Context* context,
                                                        const v1::BeginUserSessionRequest* request,
                                                        v1::BeginSessionResponse* response) {
  return Serve(context,
               [this, request, response] { return Fill(BeginForUser(*request), response); });
}

SignInService::Reactor* SignInService::BeginKeySession(Context* context,
                                                       const v1::BeginKeySessionRequest* request,
                                                       v1::BeginSessionResponse* response) {
  Reactor* const reactor = context->DefaultReactor();
  // A session cannot make another one, which would outlive it.
  const absl::StatusOr<Caller> caller = AuthenticateKey(keys_, *context);
  if (!caller.ok()) {
    reactor->Finish(ToGrpcStatus(caller.status()));
    return reactor;
  }
  RunRead(reads_, kSignIns, reactor, [this, request, response, caller = *caller]() -> absl::Status {
    ASSIGN_OR_RETURN(const ApiKeyRow key, keys_.Find(caller.key_id));
    return Fill(
        keys_.users().BeginForKey(key, RoleOf(caller.scopes), BrowserOf(request->browser())),
        response);
  });
  return reactor;
}

SignInService::Reactor* SignInService::RedeemTicket(Context* context,
                                                    const v1::RedeemTicketRequest* request,
                                                    v1::BeginSessionResponse* response) {
  return Serve(context, [this, request, response]() -> absl::Status {
    RETURN_IF_ERROR(keys_.users().UseTicket(request->ticket()));
    ASSIGN_OR_RETURN(const std::string tenant_id, keys_.FindOrMakeTenant(kDefaultTenant));
    return Fill(keys_.users().BeginForTicket(tenant_id, BrowserOf(request->browser())), response);
  });
}

absl::Status SignInService::ReadSealingKeys(v1::GetSealingKeysResponse& response) {
  const int64_t period =
      absl::ToUnixSeconds(runtime_.clock().Now()) / absl::ToInt64Seconds(kSealingPeriod);
  for (const int64_t key_id : {period, period - 1}) {
    ASSIGN_OR_RETURN(const std::string key,
                     runtime_.store().Secret(absl::StrCat("sign_in_sealing_key_", key_id)));
    v1::SealingKey* const sealing = response.add_keys();
    sealing->set_key_id(key_id);
    sealing->set_key(key);
  }
  return absl::OkStatus();
}

SignInService::Reactor* SignInService::GetSealingKeys(Context* context,
                                                      const v1::GetSealingKeysRequest*,
                                                      v1::GetSealingKeysResponse* response) {
  return Serve(context, [this, response] { return ReadSealingKeys(*response); });
}

}  // namespace lathe::engine
