// Blocks of bytes of which each rank keeps a share, whole only while they are used.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/ATen.h>
#include <absl/time/time.h>

#include "services/worker/collectives/rank_group.h"
#include "services/worker/models/shard.h"

namespace lathe::worker {

// `num_blocks` blocks of as many bytes: the frozen matrices of a layer each. A rank has 1 / world
// of each, and two buffers for whole ones. Blind to what the bytes mean, so a block may hold
// panels or rows.
//
// All of `ranks`, which are several, call Hold in the same order. A failure throws RanksDisagree.
class GatheredBlocks {
 public:
  // Zeros.
  GatheredBlocks(int64_t num_blocks, int64_t block_bytes, at::Device device,
                 const RankGroup& ranks);

  // Which bytes of each block this rank keeps; the last ranks' may be padding.
  const Shard& own() const { return own_; }
  // Before the first Hold: takes this rank's share of `block` out of its buffer, into which the
  // caller has put it.
  void Keep(int64_t block);

  // Where `block` lies while it is held: known from the start, and the same for every other block.
  at::Tensor Buffer(int64_t block) const { return buffers_[block % 2].narrow(0, 0, block_bytes_); }

  // Returns when `block` is in its buffer, on a GPU when it is queued to be, where it stays until
  // the next Hold of another block; and begins to gather `next`, a neighbour of `block`. A block
  // that is in its buffer since an earlier call is not gathered again.
  void Hold(int64_t block, std::optional<int64_t> next);

  bool IsHeld(int64_t block) const { return held_[block % 2] == block; }

  // Of memory, buffers included.
  int64_t NumBytes() const;
  // How long Hold waited for gathers; what computation did not hide.
  absl::Duration waited() const { return waited_; }

 private:
  at::Tensor Share(int64_t block) const { return shares_.select(0, block); }
  // Begins to gather `block` into its buffer, unless it is there.
  void Begin(int64_t block);
  // Ends the gather that was begun, if any.
  void End();

  const int64_t block_bytes_;
  const RankGroup ranks_;
  Shard own_;
  at::Tensor shares_;                  // [blocks, own_.padded_size()]
  std::array<at::Tensor, 2> buffers_;  // [world · own_.padded_size()]
  std::array<int64_t, 2> held_ = {-1, -1};
  std::optional<PendingCollective> pending_;
  absl::Duration waited_;
};

}  // namespace lathe::worker
