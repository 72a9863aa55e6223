// Who calls: keys in memory, checked on every rpc; and the tokens that stand for them.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "libs/common/time/clock.h"
#include "services/engine/auth/scope.h"
#include "services/engine/auth/token_signer.h"
#include "services/engine/store/store.h"

namespace lathe::engine {

struct Caller {
  std::string key_id;
  std::string tenant_id;
  std::string tenant_name;
  Scopes scopes;
};

// Mirrors the store's keys; every change goes through here, so it acts at once. Thread-safe.
class KeyRing {
 public:
  // Both must outlive this.
  KeyRing(Store& store, Clock& clock) : store_(store), clock_(clock), tokens_(store, clock) {}

  // Reads the store's keys anew.
  absl::Status Refresh() ABSL_LOCKS_EXCLUDED(change_mu_);

  // Whose the key, or the token of a key, is. Unauthenticated, always with the same text, for a key
  // that is malformed, unknown, wrong, expired or revoked; with the word bad_token for a token.
  absl::StatusOr<Caller> Authenticate(std::string_view credential) const;
  // A token for the caller's key.
  absl::StatusOr<TokenSigner::Token> IssueToken(const Caller& caller) const;

  struct NewKey {
    std::string key_id;
    std::string text;  // shown once
    int64_t expires_at = 0;
  };
  // Makes the tenant when its name is new. Empty `scopes`: train, sample, read, checkpoints:write.
  // `lifetime` is above 0 and at most ten years, or infinite.
  absl::StatusOr<NewKey> Create(const std::string& tenant_name, const std::string& key_name,
                                const std::vector<std::string>& scopes,
                                absl::Duration lifetime = absl::InfiniteDuration());
  // A new key with the tenant, name, scopes and lifetime of `key_id`, which itself ends after
  // `overlap`. NotFound for an unknown id, FailedPrecondition for one that has ended.
  absl::StatusOr<NewKey> Rotate(const std::string& key_id, absl::Duration overlap);
  // NotFound for an unknown id; revoking twice is fine. `actor`: the key that asks; empty: a person
  // at this machine.
  absl::Status Revoke(const std::string& key_id, const std::string& actor = "");

  struct ListedKey {
    ApiKeyRow row;
    std::string tenant_name;
  };
  std::vector<ListedKey> List() const;
  // NotFound for an unknown id.
  absl::StatusOr<ApiKeyRow> Find(const std::string& key_id) const;
  // NotFound for an unknown name.
  absl::StatusOr<std::string> TenantId(const std::string& name) const;
  // Empty when there is no such tenant.
  std::string TenantName(const std::string& tenant_id) const;

 private:
  struct Snapshot {
    std::map<std::string, ApiKeyRow, std::less<>> keys;  // by key_id
    std::map<std::string, std::string> tenant_names;     // by tenant_id
  };

  std::shared_ptr<const Snapshot> snapshot() const;
  absl::Status RefreshLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(change_mu_);
  absl::StatusOr<std::string> FindOrMakeTenantLocked(const std::string& name)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(change_mu_);
  // Whether the key may be used now.
  bool IsLive(const ApiKeyRow& row) const;
  // Makes `row` a new key and writes it together with `others`.
  absl::StatusOr<NewKey> AddLocked(ApiKeyRow row, std::vector<ApiKeyRow> others, AuditRow audit)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(change_mu_);
  AuditRow Entry(const ApiKeyRow& row, const char* event, const std::string& actor) const;

  Store& store_;
  Clock& clock_;
  mutable TokenSigner tokens_;
  // Held over a change and the Refresh after it: the last snapshot must be the newest.
  absl::Mutex change_mu_;
  mutable absl::Mutex mu_;
  std::shared_ptr<const Snapshot> snapshot_ ABSL_GUARDED_BY(mu_) =
      std::make_shared<const Snapshot>();
};

}  // namespace lathe::engine
