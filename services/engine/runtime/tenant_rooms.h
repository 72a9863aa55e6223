// The holdings of each tenant and the room that its limits leave, as the core published them last.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "services/engine/core/actions.h"

namespace lathe::engine {

// Lets rpc/ refuse work before it costs anything, without a call to the core. A value may be a
// moment old, so the core decides again. Thread-safe, but only the core's thread publishes. That
// thread takes the lock only for a tenant that it publishes for the first time.
class TenantRooms {
 public:
  void Publish(const NotifyTenant& notified) {
    Entry*& entry = published_[notified.tenant_id];
    if (entry == nullptr) entry = AddEntry(notified.tenant_id);
    entry->rows = notified.room.rows;
    entry->bytes = notified.room.bytes;
    entry->requests_from = notified.room.requests_from;
    entry->tokens = notified.room.tokens;
    entry->tokens_until = notified.room.tokens_until;
    entry->sessions = notified.usage.sessions;
    entry->samplers = notified.usage.samplers;
    entry->unfetched_results = notified.usage.unfetched_results;
    entry->unfetched_bytes = notified.usage.unfetched_bytes;
  }

  // Returns a room without limits for a tenant that was never published: it holds nothing.
  TenantRoom RoomOf(const std::string& tenant_id) {
    const Entry* const entry = Find(tenant_id);
    if (entry == nullptr) return {};
    return {.rows = entry->rows,
            .bytes = entry->bytes,
            .requests_from = entry->requests_from,
            .tokens = entry->tokens,
            .tokens_until = entry->tokens_until};
  }

  // Returns the sessions, samplers and unfetched results of the tenant. Other fields are zero.
  TenantUsage UsageOf(const std::string& tenant_id) {
    const Entry* const entry = Find(tenant_id);
    if (entry == nullptr) return {};
    return {.sessions = entry->sessions,
            .samplers = entry->samplers,
            .unfetched_results = entry->unfetched_results,
            .unfetched_bytes = entry->unfetched_bytes};
  }

 private:
  struct Entry {
    std::atomic<int64_t> rows = 0;
    std::atomic<int64_t> bytes = 0;
    std::atomic<int64_t> requests_from = 0;
    std::atomic<int64_t> tokens = 0;
    std::atomic<int64_t> tokens_until = 0;
    std::atomic<int64_t> sessions = 0;
    std::atomic<int64_t> samplers = 0;
    std::atomic<int64_t> unfetched_results = 0;
    std::atomic<int64_t> unfetched_bytes = 0;
  };

  Entry* AddEntry(const std::string& tenant_id) {
    absl::MutexLock lock(&mu_);
    return (entries_[tenant_id] = std::make_unique<Entry>()).get();
  }

  const Entry* Find(const std::string& tenant_id) {
    absl::ReaderMutexLock lock(&mu_);
    const auto found = entries_.find(tenant_id);
    return found == entries_.end() ? nullptr : found->second.get();
  }

  std::map<std::string, Entry*> published_;  // the core's thread only
  absl::Mutex mu_;
  std::map<std::string, std::unique_ptr<Entry>> entries_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lathe::engine
