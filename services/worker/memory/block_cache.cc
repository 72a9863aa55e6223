#include "services/worker/memory/block_cache.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

namespace lathe::worker {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kWasteShare = 8;  // at most one part in this many is wasted

using Block = BlockCache::Block;

size_t WholePages(size_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

// Does not ask for huge pages: in measurements they made no pass faster, and the load slower.
void* Map(size_t bytes) {
  void* data =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, /*fd=*/-1, 0);
  return data == MAP_FAILED ? nullptr : data;
}

void UnmapAll(const std::vector<Block>& blocks) {
  for (const Block& block : blocks) munmap(block.data, block.bytes);
}

}  // namespace

BlockCache::~BlockCache() { Clear(); }

std::optional<Block> BlockCache::Take(size_t bytes) {
  bytes = WholePages(bytes);
  std::vector<Block> too_many;
  {
    absl::MutexLock lock(&mu_);
    if (std::optional<Block> kept = TakeKeptLocked(bytes)) return kept;
    const size_t limit =
        std::max({most_in_use_, last_most_in_use_, counters_.bytes_in_use + bytes});
    too_many = TakeOverLocked(limit + kSlackBytes - bytes);
  }
  UnmapAll(too_many);
  void* data = Map(bytes);
  if (data == nullptr) {
    Clear();
    data = Map(bytes);
  }
  if (data == nullptr) return std::nullopt;
  absl::MutexLock lock(&mu_);
  ++counters_.num_mapped;
  CountLocked(bytes);
  return Block{data, bytes};
}

std::optional<Block> BlockCache::TakeKeptLocked(size_t bytes) {
  const auto best = kept_.lower_bound(bytes);
  if (best == kept_.end() || best->first > bytes + bytes / kWasteShare) return std::nullopt;
  // The block returned last is the likeliest to be in the processor's cache.
  const Block block{best->second.back().data, best->first};
  best->second.pop_back();
  if (best->second.empty()) kept_.erase(best);
  counters_.bytes_kept -= block.bytes;
  ++counters_.num_reused;
  CountLocked(block.bytes);
  return block;
}

void BlockCache::Return(const Block& block) {
  absl::MutexLock lock(&mu_);
  counters_.bytes_in_use -= block.bytes;
  counters_.bytes_kept += block.bytes;
  kept_[block.bytes].push_back({block.data, num_returned_++});
}

void BlockCache::EndPeriod() {
  std::vector<Block> too_many;
  {
    absl::MutexLock lock(&mu_);
    last_most_in_use_ = std::exchange(most_in_use_, counters_.bytes_in_use);
    too_many = TakeOverLocked(last_most_in_use_ + kSlackBytes);
  }
  UnmapAll(too_many);
}

void BlockCache::Clear() {
  std::vector<Block> all;
  {
    absl::MutexLock lock(&mu_);
    all = TakeOverLocked(/*limit=*/0);
  }
  UnmapAll(all);
}

BlockCache::Counters BlockCache::counters() const {
  absl::MutexLock lock(&mu_);
  return counters_;
}

void BlockCache::CountLocked(size_t bytes) {
  counters_.bytes_in_use += bytes;
  most_in_use_ = std::max(most_in_use_, counters_.bytes_in_use);
}

std::vector<Block> BlockCache::TakeOverLocked(size_t limit) {
  std::vector<Block> blocks;
  while (!kept_.empty() && counters_.bytes_in_use + counters_.bytes_kept > limit) {
    blocks.push_back(TakeOldestLocked());
  }
  return blocks;
}

Block BlockCache::TakeOldestLocked() {
  const auto oldest =
      std::min_element(kept_.begin(), kept_.end(), [](const auto& a, const auto& b) {
        return a.second.front().returned_at < b.second.front().returned_at;
      });
  const Block block{oldest->second.front().data, oldest->first};
  oldest->second.pop_front();
  if (oldest->second.empty()) kept_.erase(oldest);
  counters_.bytes_kept -= block.bytes;
  return block;
}

}  // namespace lathe::worker
