// Blocks of bytes of which each rank keeps a share, whole only while they are used.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "services/worker/aten.h"
#include "services/worker/collectives/rank_group.h"
#include "services/worker/models/shard.h"

namespace lathe::worker {

// Blocks of frozen matrices. A rank has 1 / world of each, and two buffers for whole ones: those of
// even and of odd numbers. Blind to what the bytes mean, so a block may hold panels or rows.
//
// All of `ranks`, which are several, hold the same blocks in the same order. A failure throws
// RanksDisagree, and so does a block that is not the next of a plan.
class GatheredBlocks {
 public:
  // Zeros, of so many bytes each.
  GatheredBlocks(const std::vector<int64_t>& block_bytes, at::Device device,
                 const RankGroup& ranks);

  // Which bytes of it this rank keeps; the last ranks' may be padding.
  const Shard& own(int64_t block) const { return blocks_[block].own; }
  // Before the first Hold: takes this rank's share of `block` out of its buffer, into which the
  // caller has put it.
  void Keep(int64_t block);

  // Where `block` lies while it is held; known from the start.
  at::Tensor Buffer(int64_t block) const {
    return buffers_[block % 2].narrow(0, 0, blocks_[block].num_bytes);
  }

  // Returns when `block` is in its buffer, on a GPU when it is queued to be, where it stays until
  // the next Hold; and begins to gather `next`, which goes to the other buffer. A block that is in
  // its buffer since an earlier call is not gathered again.
  void Hold(int64_t block, std::optional<int64_t> next = std::nullopt);

  // For ranks of which one may hold less than the others: until EndPlan, which holds the rest, all
  // hold these, each one being gathered while the one before it is held, and so is `then` after
  // the last one if it goes to the other buffer.
  void BeginPlan(std::vector<int64_t> blocks, std::optional<int64_t> then);
  void EndPlan();

  // Waits for the gather that was begun, if any.
  void End();

  // Of memory, buffers included.
  int64_t NumBytes() const;

 private:
  struct Block {
    int64_t num_bytes = 0;
    Shard own;
    at::Tensor share;  // [own.padded_size()]
  };

  // What comes after the next block of the plan.
  std::optional<int64_t> AfterNext() const;
  // Begins to gather `block` into its buffer, unless it is there.
  void Begin(int64_t block);

  const RankGroup ranks_;
  std::vector<Block> blocks_;
  at::Tensor shares_;  // of all blocks, one behind the other
  std::array<at::Tensor, 2> buffers_;
  std::array<int64_t, 2> held_ = {-1, -1};
  std::optional<PendingCollective> pending_;
  bool has_plan_ = false;
  std::vector<int64_t> plan_;
  size_t next_in_plan_ = 0;
  std::optional<int64_t> then_;
};

}  // namespace lathe::worker
