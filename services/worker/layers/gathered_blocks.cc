#include "services/worker/layers/gathered_blocks.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "libs/common/time/steady_time.h"
#include "services/worker/kernels/cpu/huge_pages.h"

namespace lathe::worker {
namespace {

// What kernels take panels to be aligned to; shares of whole lines keep copies aligned too.
constexpr int64_t kAlignment = 64;

at::Tensor Zeros(int64_t num_bytes, at::Device device) {
  if (!device.is_cpu()) return at::zeros({num_bytes}, at::TensorOptions(at::kByte).device(device));
  std::shared_ptr<void> memory = AllocateHugePages(num_bytes);
  void* const data = memory.get();
  return at::from_blob(
      data, {num_bytes}, [memory = std::move(memory)](void*) {}, at::kByte);
}

}  // namespace

GatheredBlocks::GatheredBlocks(int64_t num_blocks, int64_t block_bytes, at::Device device,
                               const RankGroup& ranks)
    : block_bytes_(block_bytes), ranks_(ranks) {
  TORCH_CHECK(num_blocks > 0 && block_bytes > 0, "no blocks to share");
  const int64_t lines = (block_bytes + kAlignment - 1) / kAlignment;
  const int64_t share_bytes = (lines + ranks.world() - 1) / ranks.world() * kAlignment;
  own_.begin = std::min(share_bytes * ranks.rank(), block_bytes);
  own_.size = std::min(share_bytes, block_bytes - own_.begin);
  own_.padding = share_bytes - own_.size;
  shares_ = Zeros(num_blocks * share_bytes, device).view({num_blocks, share_bytes});
  for (at::Tensor& buffer : buffers_) buffer = Zeros(share_bytes * ranks.world(), device);
}

void GatheredBlocks::Keep(int64_t block) {
  Share(block).narrow(0, 0, own_.size).copy_(Buffer(block).narrow(0, own_.begin, own_.size));
}

void GatheredBlocks::Hold(int64_t block, std::optional<int64_t> next) {
  TORCH_CHECK(block >= 0 && block < shares_.size(0), "block ", block, " of ", shares_.size(0));
  TORCH_CHECK(!next.has_value() || (*next >= 0 && *next < shares_.size(0) &&
                                    (*next == block + 1 || *next == block - 1)),
              "block ", next.value_or(0), " is no neighbour of block ", block);
  End();
  Begin(block);
  End();
  if (next.has_value()) Begin(*next);
}

void GatheredBlocks::Begin(int64_t block) {
  int64_t& held = held_[block % 2];
  if (held == block) return;
  held = block;
  pending_ = ranks_.StartGather("weights of a layer", Share(block), buffers_[block % 2]);
}

void GatheredBlocks::End() {
  if (!pending_.has_value()) return;
  const absl::Time begun = SteadyNow();
  ranks_.Wait(*std::exchange(pending_, std::nullopt));
  waited_ += SteadyNow() - begun;
}

int64_t GatheredBlocks::NumBytes() const {
  return static_cast<int64_t>(shares_.nbytes() + buffers_[0].nbytes() + buffers_[1].nbytes());
}

}  // namespace lathe::worker
