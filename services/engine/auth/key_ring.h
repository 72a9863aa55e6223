// Authentication of callers: API keys in memory, checked on every rpc, tokens that replace them,
// and sessions of browsers.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "libs/common/api_key/api_key.h"
#include "libs/common/time/clock.h"
#include "services/engine/auth/scope.h"
#include "services/engine/auth/token_signer.h"
#include "services/engine/auth/user_book.h"
#include "services/engine/store/store.h"

namespace lathe::engine {

// Returns true for 1 to 64 of A-Z a-z 0-9 . _ - without a leading dot.
bool IsTenantName(const std::string& name);

struct Caller {
  // Names the caller in the audit log and in links: the id of a key, "user:" and the id of a user,
  // or "session:" and the id of a session that belongs to neither.
  std::string key_id;
  std::string tenant_id;
  std::string tenant_name;
  Scopes scopes;
  // True if a session was presented, not a key.
  bool has_session = false;
};

// A mirror of the store's keys. All changes go through this class, so they take effect at once.
// Thread-safe.
class KeyRing {
 public:
  // `store` and `clock` must outlive this. `gateway_secret` is what gateways on other machines
  // present; empty: none may call.
  KeyRing(Store& store, Clock& clock, std::string gateway_secret = "",
          UserBook::Options user_options = {})
      : store_(store),
        clock_(clock),
        gateway_secret_(std::move(gateway_secret)),
        tokens_(store, clock),
        users_(store, clock, std::move(user_options)) {}

  // Returns OK if `peer` (gRPC's text) may call on behalf of the owners of keys: a process of this
  // machine on a unix socket, or a gateway that presents the secret. FailedPrecondition
  // ("not_a_gateway") otherwise.
  absl::Status CheckPeer(std::string_view peer, std::string_view gateway_secret) const;

  UserBook& users() { return users_; }
  const UserBook& users() const { return users_; }

  // Rereads all keys and users from the store.
  absl::Status Refresh() ABSL_LOCKS_EXCLUDED(change_mu_);

  // Returns the owner of an API key or of a key's token. A malformed, unknown, wrong, expired or
  // revoked key gives Unauthenticated, always with the same text. An invalid token gives
  // Unauthenticated with the code bad_token.
  absl::StatusOr<Caller> Authenticate(std::string_view credential) const;
  // Returns the owner of a browser's session, with what its user or key may do now. Unauthenticated
  // ("bad_session"): the session is unknown or has ended, alone or with its key or user.
  absl::StatusOr<Caller> AuthenticateSession(std::string_view user_session) const;
  // Authenticates whichever of the three `credential` is.
  absl::StatusOr<Caller> AuthenticateAny(std::string_view credential) const;
  // Returns the caller with the Caller::key_id of an earlier call, as a signed link says.
  // Unauthenticated: the key, user or session has ended.
  absl::StatusOr<Caller> FindCaller(const std::string& key_id) const;
  // Issues a token for the caller's key.
  absl::StatusOr<TokenSigner::Token> IssueToken(const Caller& caller) const;

  struct NewKey {
    std::string key_id;
    std::string text;  // shown only once
    int64_t expires_at = 0;
  };
  // Creates a key, and the tenant if its name is new. Empty `scopes`: train, sample, read,
  // checkpoints:write. `lifetime` is above 0 and at most ten years, or infinite. `actor` as in
  // Revoke. Unauthenticated: the actor has ended or lost the scope admin meanwhile.
  absl::StatusOr<NewKey> Create(const std::string& tenant_name, const std::string& key_name,
                                const std::vector<std::string>& scopes,
                                absl::Duration lifetime = absl::InfiniteDuration(),
                                const std::string& actor = "");
  // Makes `text`, a well-formed key that is not known, a key like one from Create.
  absl::Status Accept(const std::string& tenant_name, const std::string& key_name,
                      const std::vector<std::string>& scopes, const std::string& text);
  // Creates a key with the tenant, name, scopes and lifetime of `key_id`, and makes the old key
  // expire after `overlap`. NotFound: unknown id. FailedPrecondition: the old key is expired or
  // revoked. `actor` as in Revoke.
  absl::StatusOr<NewKey> Rotate(const std::string& key_id, absl::Duration overlap,
                                const std::string& actor = "");
  // Revokes a key; revoking it twice is no error. NotFound: unknown id. `actor` is the id of the
  // calling key; empty: a person at this machine.
  absl::Status Revoke(const std::string& key_id, const std::string& actor = "");

  struct ListedKey {
    ApiKeyRow row;
    std::string tenant_name;
    // False: revoked or expired.
    bool is_live = false;
  };
  std::vector<ListedKey> List() const;
  // Returns the error of a key that does not exist, or that the caller may not know of.
  static absl::Status NoSuchKey(const std::string& key_id);
  // Returns NoSuchKey for an unknown id.
  absl::StatusOr<ApiKeyRow> Find(const std::string& key_id) const;
  // Returns the id of the tenant, which is made if its name is new.
  absl::StatusOr<std::string> FindOrMakeTenant(const std::string& name);
  // Returns NotFound for an unknown name.
  absl::StatusOr<std::string> TenantId(const std::string& name) const;
  // Returns the id of the tenant `name`, which `caller` administers; empty: the caller's own.
  // PermissionDenied ("missing_scope"): another tenant, without the scope operator. NotFound as
  // TenantId.
  absl::StatusOr<std::string> TenantFor(const Caller& caller, const std::string& name) const;
  // Returns an empty string if there is no such tenant.
  std::string TenantName(const std::string& tenant_id) const;

 private:
  struct Snapshot {
    std::map<std::string, ApiKeyRow, std::less<>> keys;  // by key_id
    std::map<std::string, std::string> tenant_names;     // by tenant_id
  };

  static absl::StatusOr<Caller> CallerOf(const Snapshot& known, const ApiKeyRow& row);
  absl::StatusOr<Caller> CallerOf(const UserBook::Found& found) const;
  std::shared_ptr<const Snapshot> snapshot() const;
  absl::Status RefreshLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(change_mu_);
  // Returns OK if `actor` may still make keys: a call waits for its turn, and its key may end
  // meanwhile. Unauthenticated otherwise.
  absl::Status CheckActorLocked(const std::string& actor) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(change_mu_);
  absl::StatusOr<std::string> FindOrMakeTenantLocked(const std::string& name,
                                                     const std::string& actor)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(change_mu_);
  // Returns true if the key is neither revoked nor expired.
  bool IsLive(const ApiKeyRow& row) const;
  // Writes `row` as the row of `key`, together with `others`.
  absl::StatusOr<NewKey> AddLocked(const ApiKeyText& key, ApiKeyRow row,
                                   std::vector<ApiKeyRow> others, AuditRow audit)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(change_mu_);
  AuditRow Entry(const ApiKeyRow& row, const char* event, const std::string& actor) const;

  Store& store_;
  Clock& clock_;
  const std::string gateway_secret_;
  mutable TokenSigner tokens_;
  UserBook users_;
  // Held during a change and the Refresh after it, so that the last snapshot is the newest.
  absl::Mutex change_mu_;
  mutable absl::Mutex mu_;
  std::shared_ptr<const Snapshot> snapshot_ ABSL_GUARDED_BY(mu_) =
      std::make_shared<const Snapshot>();
};

}  // namespace lathe::engine
