#include "services/engine/auth/audit_log.h"

#include "absl/time/time.h"
#include "libs/common/errors.h"

namespace lathe::engine {

absl::Status AuditLog::Record(const Caller& caller, const std::string& resource,
                              const std::string& event, const std::string& object,
                              const absl::Status& result, const Metadata& details) {
  return store_.AppendAudit({.at = absl::ToUnixNanos(clock_.Now()),
                             .tenant_id = caller.tenant_id,
                             .resource = resource,
                             .event = event,
                             .actor = caller.key_id,
                             .object = object,
                             .outcome = result.ok() ? "ok" : ErrorCode(result),
                             .details = details});
}

}  // namespace lathe::engine
