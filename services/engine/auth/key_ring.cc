#include "services/engine/auth/key_ring.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "libs/common/api_key/api_key.h"
#include "libs/common/api_key/user_session.h"
#include "libs/common/digest/sha256.h"
#include "libs/common/errors.h"
#include "libs/common/random/random_id.h"
#include "libs/common/status_macros.h"
#include "libs/common/strings/string_view.h"

namespace lathe::engine {
namespace {

constexpr size_t kTenantIdBytes = 8;
constexpr size_t kMaxTenantNameBytes = 64;
constexpr size_t kMaxKeyNameBytes = 128;
constexpr absl::Duration kMaxLifetime = absl::Hours(24 * 3650);

absl::Status BadKey() {
  return WithDetail(absl::UnauthenticatedError("the API key is missing or not valid"),
                    "unauthenticated");
}

// Returns the beginning of a text that a caller gave, for a message.
std::string Shown(const std::string& text) { return text.substr(0, kMaxTenantNameBytes); }

constexpr std::string_view kUserCaller = "user:";
constexpr std::string_view kSessionCaller = "session:";

absl::Status BadSession() {
  return WithDetail(absl::UnauthenticatedError("the session has ended; sign in again"),
                    "bad_session");
}

}  // namespace

bool IsTenantName(const std::string& name) {
  return !name.empty() && name.size() <= kMaxTenantNameBytes && name[0] != '.' &&
         name.find_first_not_of(
             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") ==
             std::string::npos;
}

namespace {

absl::Status CheckNames(const std::string& tenant_name, const std::string& key_name) {
  if (!IsTenantName(tenant_name)) {
    return WithDetail(
        absl::InvalidArgumentError(absl::StrFormat(
            "tenant is '%s', expected 1 to %d of A-Z a-z 0-9 . _ - without a leading dot",
            Shown(tenant_name), kMaxTenantNameBytes)),
        "bad_name", "tenant");
  }
  if (key_name.size() > kMaxKeyNameBytes) {
    return WithDetail(absl::InvalidArgumentError(absl::StrFormat(
                          "name has %d bytes, limit is %d", key_name.size(), kMaxKeyNameBytes)),
                      "bad_name", "name");
  }
  return absl::OkStatus();
}

absl::Status CheckLifetime(absl::Duration lifetime, const char* field) {
  if (lifetime > absl::ZeroDuration() && lifetime <= kMaxLifetime) return absl::OkStatus();
  return WithDetail(absl::InvalidArgumentError(absl::StrFormat(
                        "%s is %d s, expected 1 s to %d s", field, absl::ToInt64Seconds(lifetime),
                        absl::ToInt64Seconds(kMaxLifetime))),
                    "invalid_field", field);
}

}  // namespace

absl::Status KeyRing::Refresh() {
  RETURN_IF_ERROR(users_.Refresh());
  absl::MutexLock lock(&change_mu_);
  return RefreshLocked();
}

absl::Status KeyRing::RefreshLocked() {
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

bool KeyRing::IsLive(const ApiKeyRow& row) const {
  return row.revoked_at == 0 &&
         (row.expires_at == 0 || row.expires_at > absl::ToUnixNanos(clock_.Now()));
}

absl::Status KeyRing::CheckPeer(std::string_view peer, std::string_view gateway_secret) const {
  // The run directory has mode 0700, so a peer on a socket is a process of the service's user.
  if (peer.starts_with("unix:")) return absl::OkStatus();
  if (!gateway_secret_.empty() && EqualInConstantTime(gateway_secret, gateway_secret_)) {
    return absl::OkStatus();
  }
  return WithDetail(
      absl::FailedPreconditionError(
          gateway_secret.empty()
              ? "this address serves gateways only: clients call a gateway's grpc_listen, and a "
                "gateway needs gateway.secret_file"
              : "the gateway's secret is not that of this engine: its gateway.secret_file must "
                "be a copy of the engine's RUN_DIR/gateway.secret"),
      "not_a_gateway");
}

absl::StatusOr<Caller> KeyRing::Authenticate(std::string_view credential) const {
  std::string key_id;
  const bool is_token = TokenSigner::IsToken(credential);
  if (is_token) {
    ASSIGN_OR_RETURN(key_id, tokens_.Verify(credential));
  } else {
    const std::optional<std::string> parsed = ParseKeyId(credential);
    if (!parsed) return BadKey();
    key_id = *parsed;
  }
  const std::shared_ptr<const Snapshot> known = snapshot();
  const auto found = known->keys.find(key_id);
  // Hash the secret even if the id is unknown, so that both cases take equally long.
  const std::string digest = is_token ? "" : Sha256Hex(credential);
  if (found == known->keys.end()) return is_token ? TokenSigner::BadToken() : BadKey();
  const ApiKeyRow& row = found->second;
  const bool is_proven = is_token || EqualInConstantTime(digest, row.secret_sha256);
  if (!is_proven || !IsLive(row)) return is_token ? TokenSigner::BadToken() : BadKey();
  return CallerOf(*known, row);
}

absl::StatusOr<Caller> KeyRing::AuthenticateSession(std::string_view user_session) const {
  const std::optional<UserBook::Found> found = users_.Find(user_session);
  return found ? CallerOf(*found) : BadSession();
}

absl::StatusOr<Caller> KeyRing::AuthenticateAny(std::string_view credential) const {
  return IsUserSession(credential) ? AuthenticateSession(credential) : Authenticate(credential);
}

absl::StatusOr<Caller> KeyRing::CallerOf(const UserBook::Found& found) const {
  const UserSessionRow& session = found.session;
  if (!session.key_id.empty()) {
    absl::StatusOr<Caller> caller = FindCaller(session.key_id);
    if (!caller.ok()) return BadSession();
    caller->has_session = true;
    return caller;
  }
  ASSIGN_OR_RETURN(const UserRole role,
                   ParseUserRole(found.user ? found.user->role : session.role, "role"));
  const std::string& tenant_id = found.user ? found.user->tenant_id : session.tenant_id;
  std::string id = found.user
                       ? absl::StrCat(AbslView(kUserCaller), found.user->user_id)
                       : absl::StrCat(AbslView(kSessionCaller), UserBook::SessionIdOf(session));
  return Caller{.key_id = std::move(id),
                .tenant_id = tenant_id,
                .tenant_name = TenantName(tenant_id),
                .scopes = ScopesOf(role),
                .has_session = true};
}

absl::StatusOr<Caller> KeyRing::FindCaller(const std::string& key_id) const {
  if (key_id.starts_with(kUserCaller)) {
    std::optional<UserRow> user = users_.FindUser(key_id.substr(kUserCaller.size()));
    if (!user || user->disabled_at != 0) return BadSession();
    return CallerOf(UserBook::Found{.session = {}, .user = std::move(user)});
  }
  if (key_id.starts_with(kSessionCaller)) {
    const auto found = users_.FindById(key_id.substr(kSessionCaller.size()));
    return found ? CallerOf(*found) : BadSession();
  }
  const std::shared_ptr<const Snapshot> known = snapshot();
  const auto found = known->keys.find(key_id);
  if (found == known->keys.end() || !IsLive(found->second)) return BadKey();
  return CallerOf(*known, found->second);
}

absl::StatusOr<Caller> KeyRing::CallerOf(const Snapshot& known, const ApiKeyRow& row) {
  ASSIGN_OR_RETURN(const Scopes scopes, Scopes::Parse(row.scopes));
  const auto name = known.tenant_names.find(row.tenant_id);
  return Caller{.key_id = row.key_id,
                .tenant_id = row.tenant_id,
                .tenant_name = name == known.tenant_names.end() ? "" : name->second,
                .scopes = scopes};
}

absl::StatusOr<TokenSigner::Token> KeyRing::IssueToken(const Caller& caller) const {
  return tokens_.Issue(caller.key_id, caller.tenant_name);
}

absl::StatusOr<std::string> KeyRing::FindOrMakeTenant(const std::string& name) {
  if (absl::StatusOr<std::string> known = TenantId(name); known.ok()) return known;
  RETURN_IF_ERROR(CheckNames(name, ""));
  absl::MutexLock lock(&change_mu_);
  ASSIGN_OR_RETURN(std::string tenant_id, FindOrMakeTenantLocked(name, /*actor=*/""));
  RETURN_IF_ERROR(RefreshLocked());
  return tenant_id;
}

absl::StatusOr<std::string> KeyRing::FindOrMakeTenantLocked(const std::string& name,
                                                            const std::string& actor) {
  if (absl::StatusOr<std::string> known = TenantId(name); known.ok()) return known;
  const TenantRow row{.tenant_id = RandomId(kTenantIdBytes),
                      .name = name,
                      .created_at = absl::ToUnixNanos(clock_.Now())};
  RETURN_IF_ERROR(store_.PutTenant(row));
  RETURN_IF_ERROR(store_.AppendAudit({.at = row.created_at,
                                      .tenant_id = row.tenant_id,
                                      .resource = "organizations",
                                      .event = "tenant_create",
                                      .actor = actor,
                                      .object = name,
                                      .outcome = "ok",
                                      .details = {}}));
  return row.tenant_id;
}

AuditRow KeyRing::Entry(const ApiKeyRow& row, const char* event, const std::string& actor) const {
  return {.at = absl::ToUnixNanos(clock_.Now()),
          .tenant_id = row.tenant_id,
          .resource = "organizations",
          .event = event,
          .actor = actor,
          .object = row.key_id,
          .outcome = "ok",
          .details = {{"name", row.name}, {"scopes", absl::StrJoin(row.scopes, ",")}}};
}

absl::StatusOr<KeyRing::NewKey> KeyRing::AddLocked(const ApiKeyText& key, ApiKeyRow row,
                                                   std::vector<ApiKeyRow> others, AuditRow audit) {
  row.key_id = key.key_id;
  row.secret_sha256 = Sha256Hex(key.text);
  row.created_at = absl::ToUnixNanos(clock_.Now());
  if (audit.object.empty()) {
    audit.object = key.key_id;
  } else {
    audit.details.emplace_back("new_key_id", key.key_id);
    std::sort(audit.details.begin(), audit.details.end());
  }
  others.push_back(row);
  RETURN_IF_ERROR(store_.PutKeys(others, audit));
  RETURN_IF_ERROR(RefreshLocked());
  return NewKey{.key_id = key.key_id, .text = key.text, .expires_at = row.expires_at};
}

absl::StatusOr<KeyRing::NewKey> KeyRing::Create(const std::string& tenant_name,
                                                const std::string& key_name,
                                                const std::vector<std::string>& scopes,
                                                absl::Duration lifetime, const std::string& actor) {
  RETURN_IF_ERROR(CheckNames(tenant_name, key_name));
  ASSIGN_OR_RETURN(Scopes parsed, Scopes::Parse(scopes));
  if (scopes.empty()) {
    parsed =
        Scope::kTrain | Scope::kSample | Scopes(Scope::kRead) | Scopes(Scope::kCheckpointsWrite);
  }
  ApiKeyRow row;
  row.name = key_name;
  row.scopes = parsed.Words();
  if (lifetime != absl::InfiniteDuration()) {
    RETURN_IF_ERROR(CheckLifetime(lifetime, "expires_in_seconds"));
    row.expires_at = absl::ToUnixNanos(clock_.Now() + lifetime);
  }
  absl::MutexLock lock(&change_mu_);
  RETURN_IF_ERROR(CheckActorLocked(actor));
  ASSIGN_OR_RETURN(row.tenant_id, FindOrMakeTenantLocked(tenant_name, actor));
  return AddLocked(MakeApiKey(), row, {}, Entry(row, "key_create", actor));
}

absl::Status KeyRing::Accept(const std::string& tenant_name, const std::string& key_name,
                             const std::vector<std::string>& scopes, const std::string& text) {
  RETURN_IF_ERROR(CheckNames(tenant_name, key_name));
  ASSIGN_OR_RETURN(const Scopes parsed, Scopes::Parse(scopes));
  const std::optional<std::string> key_id = ParseKeyId(text);
  if (!key_id) return absl::InvalidArgumentError("the text is no API key");
  absl::MutexLock lock(&change_mu_);
  if (Find(*key_id).ok()) return absl::AlreadyExistsError("the id of the key is known");
  ApiKeyRow row;
  row.name = key_name;
  row.scopes = parsed.Words();
  ASSIGN_OR_RETURN(row.tenant_id, FindOrMakeTenantLocked(tenant_name, /*actor=*/""));
  return AddLocked({.key_id = *key_id, .text = text}, row, {},
                   Entry(row, "key_create", /*actor=*/""))
      .status();
}

absl::StatusOr<KeyRing::NewKey> KeyRing::Rotate(const std::string& key_id, absl::Duration overlap,
                                                const std::string& actor) {
  absl::MutexLock lock(&change_mu_);
  RETURN_IF_ERROR(CheckActorLocked(actor));
  ASSIGN_OR_RETURN(ApiKeyRow old, Find(key_id));
  if (!IsLive(old)) {
    return WithDetail(absl::FailedPreconditionError(
                          absl::StrFormat("key '%s' has ended; create a new one instead", key_id)),
                      "key_ended", "key_id");
  }
  if (overlap != absl::ZeroDuration()) {
    RETURN_IF_ERROR(CheckLifetime(overlap, "overlap_seconds"));
  }
  const int64_t now = absl::ToUnixNanos(clock_.Now());
  ApiKeyRow fresh = old;
  if (old.expires_at > 0) fresh.expires_at = now + (old.expires_at - old.created_at);
  const int64_t end = now + absl::ToInt64Nanoseconds(overlap);
  old.expires_at = old.expires_at == 0 ? end : std::min(old.expires_at, end);
  return AddLocked(MakeApiKey(), fresh, {old}, Entry(old, "key_rotate", actor));
}

absl::Status KeyRing::CheckActorLocked(const std::string& actor) const {
  if (actor.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Caller caller, FindCaller(actor));
  return caller.scopes.HasAny(Scope::kAdmin) ? absl::OkStatus() : BadKey();
}

absl::Status KeyRing::Revoke(const std::string& key_id, const std::string& actor) {
  absl::MutexLock lock(&change_mu_);
  ASSIGN_OR_RETURN(ApiKeyRow row, Find(key_id));
  if (row.revoked_at != 0) return absl::OkStatus();
  row.revoked_at = absl::ToUnixNanos(clock_.Now());
  RETURN_IF_ERROR(store_.PutKeys({&row, 1}, Entry(row, "key_revoke", actor)));
  return RefreshLocked();
}

absl::Status KeyRing::NoSuchKey(const std::string& key_id) {
  return WithDetail(
      absl::NotFoundError(absl::StrFormat("key '%s' does not exist", key_id.substr(0, 64))),
      "not_found", "key_id");
}

absl::StatusOr<ApiKeyRow> KeyRing::Find(const std::string& key_id) const {
  const std::shared_ptr<const Snapshot> known = snapshot();
  const auto found = known->keys.find(key_id);
  if (found != known->keys.end()) return found->second;
  return NoSuchKey(key_id);
}

std::vector<KeyRing::ListedKey> KeyRing::List() const {
  const std::shared_ptr<const Snapshot> known = snapshot();
  std::vector<ListedKey> keys;
  for (const auto& [key_id, row] : known->keys) {
    const auto name = known->tenant_names.find(row.tenant_id);
    keys.push_back({row, name == known->tenant_names.end() ? "" : name->second, IsLive(row)});
  }
  return keys;
}

absl::StatusOr<std::string> KeyRing::TenantId(const std::string& name) const {
  for (const auto& [tenant_id, tenant_name] : snapshot()->tenant_names) {
    if (tenant_name == name) return tenant_id;
  }
  return WithDetail(absl::NotFoundError(absl::StrFormat("tenant '%s' does not exist", Shown(name))),
                    "not_found", "tenant");
}

absl::StatusOr<std::string> KeyRing::TenantFor(const Caller& caller,
                                               const std::string& name) const {
  if (name.empty() || name == caller.tenant_name) return caller.tenant_id;
  if (caller.scopes.HasAny(Scope::kOperator)) return TenantId(name);
  return WithDetail(absl::PermissionDeniedError(absl::StrFormat(
                        "tenant is '%s', a key of tenant '%s' needs the scope operator for it",
                        Shown(name), caller.tenant_name)),
                    "missing_scope", "tenant");
}

std::string KeyRing::TenantName(const std::string& tenant_id) const {
  const std::shared_ptr<const Snapshot> known = snapshot();
  const auto name = known->tenant_names.find(tenant_id);
  return name == known->tenant_names.end() ? "" : name->second;
}

}  // namespace lathe::engine
