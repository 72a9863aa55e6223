#include "services/engine/runtime/bodies.h"

#include <utility>

#include "libs/common/random/random_id.h"
#include "libs/common/status_macros.h"

namespace lathe::engine {
namespace {

constexpr size_t kBodyIdBytes = 16;

int64_t Size(const SharedBytes& bytes) { return static_cast<int64_t>(bytes->size()); }

}  // namespace

absl::StatusOr<PayloadRef> Bodies::Add(std::string bytes, int64_t tokens) {
  PayloadRef ref{.body_id = RandomId(kBodyIdBytes),
                 .bytes = static_cast<int64_t>(bytes.size()),
                 .tokens = tokens};
  ++num_added_;
  if (ref.bytes > kInlineBodyBytes) RETURN_IF_ERROR(store_.PutLargeBody(ref.body_id, bytes));
  absl::MutexLock lock(&mu_);
  entries_[ref.body_id].bytes = std::make_shared<const std::string>(std::move(bytes));
  return ref;
}

SharedBytes Bodies::InMemory(const std::string& body_id) {
  absl::MutexLock lock(&mu_);
  const auto found = entries_.find(body_id);
  return found == entries_.end() ? nullptr : found->second.bytes;
}

absl::StatusOr<SharedBytes> Bodies::Read(const std::string& body_id) {
  if (SharedBytes bytes = InMemory(body_id)) return bytes;
  ASSIGN_OR_RETURN(std::string bytes, store_.ReadBody(body_id));
  return std::make_shared<const std::string>(std::move(bytes));
}

void Bodies::MarkCommitted(const std::string& body_id) {
  absl::MutexLock lock(&mu_);
  const auto found = entries_.find(body_id);
  if (found == entries_.end() || found->second.committed) return;
  found->second.committed = true;
  found->second.age = committed_order_.insert(committed_order_.end(), body_id);
  committed_bytes_ += Size(found->second.bytes);
  EvictLocked();
}

void Bodies::Forget(const std::string& body_id) {
  bool discard = false;
  {
    absl::MutexLock lock(&mu_);
    const auto found = entries_.find(body_id);
    if (found == entries_.end()) return;
    const Entry& entry = found->second;
    if (entry.committed) {
      committed_bytes_ -= Size(entry.bytes);
      committed_order_.erase(entry.age);
    } else {
      discard = Size(entry.bytes) > kInlineBodyBytes;
    }
    entries_.erase(found);
  }
  if (discard) store_.DiscardLargeBody(body_id);
}

void Bodies::EvictLocked() {
  while (committed_bytes_ > max_cached_bytes_ && !committed_order_.empty()) {
    const auto oldest = entries_.find(committed_order_.front());
    committed_bytes_ -= Size(oldest->second.bytes);
    entries_.erase(oldest);
    committed_order_.pop_front();
  }
}

}  // namespace lathe::engine
