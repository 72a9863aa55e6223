// Who calls: keys in memory, checked on every rpc.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "libs/common/time/clock.h"
#include "services/engine/auth/scope.h"
#include "services/engine/store/store.h"

namespace lathe::engine {

struct Caller {
  std::string tenant_id;
  std::string tenant_name;
  Scopes scopes;
};

// Mirrors the store's keys; every change goes through here, so it acts at once. Thread-safe.
class KeyRing {
 public:
  // Both must outlive this.
  KeyRing(Store& store, Clock& clock) : store_(store), clock_(clock) {}

  // Reads the store's keys anew.
  absl::Status Refresh();

  // Unauthenticated, always with the same text, for a key that is malformed, unknown, wrong,
  // expired or revoked.
  absl::StatusOr<Caller> Authenticate(std::string_view key) const;

  struct NewKey {
    std::string key_id;
    std::string text;  // shown once
  };
  // Makes the tenant when its name is new. Empty `scopes`: train, sample, read, checkpoints:write.
  absl::StatusOr<NewKey> Create(const std::string& tenant_name, const std::string& key_name,
                                const std::vector<std::string>& scopes);
  // NotFound for an unknown id; revoking twice is fine.
  absl::Status Revoke(const std::string& key_id);

  struct ListedKey {
    ApiKeyRow row;
    std::string tenant_name;
  };
  std::vector<ListedKey> List() const;
  // Empty when there is no such tenant.
  std::string TenantName(const std::string& tenant_id) const;

 private:
  struct Snapshot {
    std::map<std::string, ApiKeyRow, std::less<>> keys;  // by key_id
    std::map<std::string, std::string> tenant_names;     // by tenant_id
  };

  std::shared_ptr<const Snapshot> snapshot() const;
  absl::StatusOr<std::string> FindOrMakeTenant(const std::string& name);

  Store& store_;
  Clock& clock_;
  mutable absl::Mutex mu_;
  std::shared_ptr<const Snapshot> snapshot_ ABSL_GUARDED_BY(mu_) =
      std::make_shared<const Snapshot>();
};

}  // namespace lathe::engine
