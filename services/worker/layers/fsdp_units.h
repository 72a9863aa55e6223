// FSDP units: blocks of bytes that are sharded over ranks and unsharded only while they are in use.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "services/worker/collectives/rank_group.h"
#include "services/worker/spec/shard.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

// The FSDP units (blocks) of a model's frozen matrices. A rank keeps 1 / world of each block. It
// has two buffers for whole blocks: one for even block numbers, one for odd ones. The class does
// not interpret the bytes, so a block may hold panels or rows.
//
// All of `ranks` (at least two) hold the same blocks in the same order. A failed collective throws
// RanksDisagree, and so does Unshard of a block that is not the next of the plan.
class FsdpUnits {
 public:
  // Creates blocks of the given sizes, filled with zeros.
  FsdpUnits(const std::vector<int64_t>& block_bytes, at::Device device, const RankGroup& ranks);

  // The bytes of the block that this rank keeps. The last ranks' shares may be padding.
  const Shard& own(int64_t block) const { return blocks_[block].own; }
  // Copies this rank's share of `block` out of the block's buffer, which the caller has filled.
  // Call it before the first Unshard.
  void Reshard(int64_t block);

  // Returns the memory that contains `block` while it is unsharded. Call it at any time.
  at::Tensor Buffer(int64_t block) const {
    return buffers_[block % 2].narrow(0, 0, blocks_[block].num_bytes);
  }

  // Unshards `block` and returns when it is in its buffer; on a GPU, when the gather is queued. The
  // block stays there until the next Unshard. Then begins to unshard `next`, which must use the
  // other buffer. A block that is still in its buffer is not gathered again.
  void Unshard(int64_t block, std::optional<int64_t> next = std::nullopt);

  // Begins a plan, for steps in which one rank may need fewer blocks than others. Until EndPlan all
  // ranks unshard `blocks` in this order. EndPlan unshards the rest. While a block is in use, the
  // next one is gathered. While the last block is in use, `then` is gathered if it uses the other
  // buffer.
  void BeginPlan(std::vector<int64_t> blocks, std::optional<int64_t> then);
  void EndPlan();

  // Waits for the pending gather, if any.
  void End();

  // Memory in bytes, including both buffers.
  int64_t NumBytes() const;

 private:
  struct Block {
    int64_t num_bytes = 0;
    Shard own;
    at::Tensor share;  // [own.padded_size()]
  };

  // The block after the plan's next one, or `then` if it uses the other buffer.
  std::optional<int64_t> AfterNext() const;
  // Begins to gather `block` into its buffer, unless it is there already.
  void Begin(int64_t block);

  const RankGroup ranks_;
  std::vector<Block> blocks_;
  at::Tensor shares_;  // memory of all blocks' shares, in order
  std::array<at::Tensor, 2> buffers_;
  std::array<int64_t, 2> unsharded_ = {-1, -1};
  std::optional<PendingCollective> pending_;
  bool has_plan_ = false;
  std::vector<int64_t> plan_;
  size_t next_in_plan_ = 0;
  std::optional<int64_t> then_;
};

}  // namespace lathe::worker
