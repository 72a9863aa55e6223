// The audit log: an append-only record of changes to keys, tenants and checkpoints.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <tuple>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
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

  // Records a successful read of a checkpoint. Equal reads within a minute are one entry, so that a
  // key that may only read cannot fill the log.
  absl::Status RecordRead(const Caller& caller, const std::string& event, const std::string& object,
                          const Metadata& details = {}) {
    const Read read(caller.tenant_id, caller.key_id, event, object, details);
    if (IsRepeated(read)) return absl::OkStatus();
    const absl::Status status =
        Record(caller, "checkpoints", event, object, absl::OkStatus(), details);
    if (status.ok()) Remember(read);
    return status;
  }

 private:
  using Read = std::tuple<std::string, std::string, std::string, std::string, Metadata>;

  static constexpr absl::Duration kOneEntry = absl::Minutes(1);
  // Bound on the remembered reads. Reads above it are recorded each time.
  static constexpr size_t kMaxReads = 16384;

  bool IsRepeated(const Read& read) {
    absl::MutexLock lock(&mu_);
    const auto found = read_at_.find(read);
    return found != read_at_.end() && clock_.Now() - found->second < kOneEntry;
  }

  void Remember(const Read& read) {
    absl::MutexLock lock(&mu_);
    const absl::Time now = clock_.Now();
    if (read_at_.size() >= kMaxReads && now >= sweep_at_) {
      std::erase_if(read_at_, [&](const auto& one) { return now - one.second >= kOneEntry; });
      sweep_at_ = now + kOneEntry / 2;  // a sweep visits all of them
    }
    if (read_at_.size() < kMaxReads || read_at_.contains(read)) read_at_[read] = now;
  }

  Store& store_;
  Clock& clock_;
  absl::Mutex mu_;
  std::map<Read, absl::Time> read_at_ ABSL_GUARDED_BY(mu_);
  absl::Time sweep_at_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
};

}  // namespace lathe::engine
