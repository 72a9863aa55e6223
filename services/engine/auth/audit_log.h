// The audit log: an append-only record of changes to keys, tenants and checkpoints.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "libs/common/errors.h"
#include "libs/common/time/clock.h"
#include "services/engine/auth/key_ring.h"
#include "services/engine/store/store.h"

namespace lathe::engine {

// Records changes made outside the core; the core adds its own entries to its commits
// (AppendAudit). Thread-safe.
class AuditLog {
 public:
  // Both must outlive this.
  AuditLog(Store& store, Clock& clock) : store_(store), clock_(clock) {}

  // Appends an entry, which is durable on return. `resource` is checkpoints, organizations or
  // projects. `event` is {resource}_{action} in the singular. `object` is a path or an id. `result`
  // is the outcome of the action.
  absl::Status Record(const Caller& caller, const std::string& resource, const std::string& event,
                      const std::string& object, const absl::Status& result = absl::OkStatus(),
                      const Metadata& details = {}) {
    return store_.AppendAudit({.at = absl::ToUnixNanos(clock_.Now()),
                               .tenant_id = caller.tenant_id,
                               .resource = resource,
                               .event = event,
                               .actor = caller.key_id,
                               .object = object,
                               .outcome = result.ok() ? "ok" : ErrorCode(result),
                               .details = details});
  }

 private:
  Store& store_;
  Clock& clock_;
};

}  // namespace lathe::engine
