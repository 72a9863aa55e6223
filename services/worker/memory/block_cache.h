// Large blocks of memory that are used again instead of going back to the kernel. Free of torch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace lathe::worker {

// Fresh memory costs a page fault and a cleared page for every 4 KiB, and a training pass asks for
// the same sizes in every layer and in the next pass.
//
// What is kept hardly raises the most memory that the process holds: blocks in use and blocks kept
// together are at most kSlackBytes more than was in use at one time in this period or the last one.
// A period is a training pass.
//
// Blocks hold what their last user left in them. Any thread may call; nobody waits for the kernel
// with the lock held.
class BlockCache {
 public:
  // Whole pages, the first one at a multiple of 4 KiB.
  struct Block {
    void* data = nullptr;
    size_t bytes = 0;
  };

  // What layer steps make and free would not outlast the moment at which a pass holds the most: it
  // lies elsewhere.
  static constexpr size_t kSlackBytes = size_t{128} << 20;

  struct Counters {
    size_t bytes_in_use = 0;
    size_t bytes_kept = 0;
    int64_t num_reused = 0;
    int64_t num_mapped = 0;
  };

  BlockCache() = default;
  ~BlockCache();
  BlockCache(const BlockCache&) = delete;
  BlockCache& operator=(const BlockCache&) = delete;

  // At least `bytes` > 0, and at most an eighth more than whole pages need. nullopt when the system
  // has no memory even with nothing kept.
  std::optional<Block> Take(size_t bytes);

  // `block` as Take gave it.
  void Return(const Block& block);

  // Gives back what a period like the one that ends here would not use.
  void EndPeriod();

  // Gives back all that is kept.
  void Clear();

  Counters counters() const;

 private:
  struct Kept {
    void* data;
    int64_t returned_at;  // counts Return
  };

  std::optional<Block> TakeKeptLocked(size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CountLocked(size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The blocks kept longest, until `limit` bytes are in use and kept.
  std::vector<Block> TakeOverLocked(size_t limit) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Block TakeOldestLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable absl::Mutex mu_;
  // By size; of each size the one that returned first in front.
  std::map<size_t, std::deque<Kept>> kept_ ABSL_GUARDED_BY(mu_);
  Counters counters_ ABSL_GUARDED_BY(mu_);
  size_t most_in_use_ ABSL_GUARDED_BY(mu_) = 0;       // of this period
  size_t last_most_in_use_ ABSL_GUARDED_BY(mu_) = 0;  // of the one before
  int64_t num_returned_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace lathe::worker
