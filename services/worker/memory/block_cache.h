// A cache of large memory blocks, which are reused instead of returned to the kernel. Does not
// include torch.
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

// Fresh memory costs a page fault and a cleared page for every 4 KiB. A training pass asks for the
// same sizes in every layer and in the next pass.
//
// The cache hardly raises the process's peak memory. Blocks in use and cached blocks together are
// at most kSlackBytes more than the peak use in this period or the last one. A period is a training
// pass.
//
// Blocks keep the content that their last user left in them. Thread-safe; the lock is not held
// during system calls.
class BlockCache {
 public:
  // Whole pages that begin at a multiple of 4 KiB.
  struct Block {
    void* data = nullptr;
    size_t bytes = 0;
  };

  // Without slack, the blocks that layer steps allocate and free would be evicted at the pass's
  // peak, which lies elsewhere in the pass.
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

  // Returns a block of at least `bytes` > 0, and at most an eighth more than whole pages need.
  // nullopt: the system has no memory even with an empty cache.
  std::optional<Block> Take(size_t bytes);

  // `block` is a result of Take.
  void Return(const Block& block);

  // Ends the period. Frees cached blocks that a period like it would not use.
  void EndPeriod();

  // Frees all cached blocks.
  void Clear();

  Counters counters() const;

 private:
  struct Kept {
    void* data;
    int64_t returned_at;  // value of num_returned_ at its Return
  };

  std::optional<Block> TakeKeptLocked(size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CountLocked(size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Removes the blocks cached longest, until blocks in use and cached ones take at most `limit`
  // bytes.
  std::vector<Block> TakeOverLocked(size_t limit) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Block TakeOldestLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable absl::Mutex mu_;
  // Keyed by size. Within a size, the block that was returned first is in front.
  std::map<size_t, std::deque<Kept>> kept_ ABSL_GUARDED_BY(mu_);
  Counters counters_ ABSL_GUARDED_BY(mu_);
  size_t most_in_use_ ABSL_GUARDED_BY(mu_) = 0;       // in this period
  size_t last_most_in_use_ ABSL_GUARDED_BY(mu_) = 0;  // in the period before
  int64_t num_returned_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace lathe::worker
