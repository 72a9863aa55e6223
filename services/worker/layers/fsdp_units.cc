#include "services/worker/layers/fsdp_units.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "services/worker/kernels/cpu/matmul/weight_panels.h"

namespace lathe::worker {
namespace {

// Alignment of panels that kernels require. Shares of whole cache lines keep copies aligned too.
constexpr int64_t kAlignment = 64;

at::Tensor Zeros(int64_t num_bytes, at::Device device) {
  if (!device.is_cpu()) return at::zeros({num_bytes}, at::TensorOptions(at::kByte).device(device));
  std::shared_ptr<void> memory = AllocateHugePages(num_bytes);
  void* const data = memory.get();
  return at::from_blob(
      data, {num_bytes}, [memory = std::move(memory)](void*) {}, at::kByte);
}

// Throws RanksDisagree: this rank would not gather the same block as its peers. Any other exception
// would end one request only, and the peers would continue with bytes of another block.
void ThrowUnlessAsPlanned(bool ok, std::string what) {
  if (!ok) throw RanksDisagree{absl::InternalError(absl::StrCat("base weights: ", what))};
}

// Returns this rank's share. Shares are of equal size, in whole cache lines.
Shard ShareOf(int64_t num_bytes, const RankGroup& ranks) {
  const int64_t lines = (num_bytes + kAlignment - 1) / kAlignment;
  const int64_t share_bytes = (lines + ranks.world() - 1) / ranks.world() * kAlignment;
  Shard own;
  own.begin = std::min(share_bytes * ranks.rank(), num_bytes);
  own.size = std::min(share_bytes, num_bytes - own.begin);
  own.padding = share_bytes - own.size;
  return own;
}

}  // namespace

FsdpUnits::FsdpUnits(const std::vector<int64_t>& block_bytes, at::Device device,
                     const RankGroup& ranks)
    : ranks_(ranks) {
  int64_t total_bytes = 0;
  std::array<int64_t, 2> buffer_bytes = {0, 0};
  for (const int64_t num_bytes : block_bytes) {
    Block block{.num_bytes = num_bytes, .own = ShareOf(num_bytes, ranks)};
    int64_t& largest = buffer_bytes[blocks_.size() % 2];
    largest = std::max(largest, block.own.padded_size() * ranks.world());
    total_bytes += block.own.padded_size();
    blocks_.push_back(std::move(block));
  }
  shares_ = Zeros(total_bytes, device);
  int64_t begin = 0;
  for (Block& block : blocks_) {
    block.share = shares_.narrow(0, begin, block.own.padded_size());
    begin += block.own.padded_size();
  }
  for (size_t i = 0; i < buffers_.size(); ++i) buffers_[i] = Zeros(buffer_bytes[i], device);
}

void FsdpUnits::Reshard(int64_t block) {
  const Shard& own = blocks_[block].own;
  blocks_[block].share.narrow(0, 0, own.size).copy_(Buffer(block).narrow(0, own.begin, own.size));
}

void FsdpUnits::BeginPlan(std::vector<int64_t> blocks, std::optional<int64_t> then) {
  ThrowUnlessAsPlanned(!has_plan_, "a plan of blocks has not ended");
  has_plan_ = true;
  plan_ = std::move(blocks);
  next_in_plan_ = 0;
  then_ = then;
}

void FsdpUnits::EndPlan() {
  while (next_in_plan_ < plan_.size()) Unshard(plan_[next_in_plan_]);
  has_plan_ = false;
}

std::optional<int64_t> FsdpUnits::AfterNext() const {
  if (next_in_plan_ + 1 < plan_.size()) return plan_[next_in_plan_ + 1];
  const bool has_room = then_.has_value() && *then_ % 2 != plan_[next_in_plan_] % 2;
  return has_room ? then_ : std::nullopt;
}

void FsdpUnits::Unshard(int64_t block, std::optional<int64_t> next) {
  const auto num_blocks = static_cast<int64_t>(blocks_.size());
  TORCH_CHECK(block >= 0 && block < num_blocks, "block ", block, " of ", num_blocks);
  if (has_plan_) {
    ThrowUnlessAsPlanned(next_in_plan_ < plan_.size() && plan_[next_in_plan_] == block,
                         absl::StrCat("block ", block, " is not the next of the plan"));
    next = AfterNext();
    ++next_in_plan_;
  }
  TORCH_CHECK(!next.has_value() || (*next >= 0 && *next < num_blocks && *next % 2 != block % 2),
              "block ", next.value_or(0), " cannot be gathered beside block ", block);
  End();
  Begin(block);
  End();
  if (next.has_value()) Begin(*next);
}

void FsdpUnits::Begin(int64_t block) {
  int64_t& unsharded = unsharded_[block % 2];
  if (unsharded == block) return;
  unsharded = block;
  const at::Tensor& share = blocks_[block].share;
  pending_ = ranks_.StartGather("base weights", share,
                                buffers_[block % 2].narrow(0, 0, share.size(0) * ranks_.world()));
}

void FsdpUnits::End() {
  if (pending_.has_value()) ranks_.Wait(*std::exchange(pending_, std::nullopt));
}

int64_t FsdpUnits::NumBytes() const {
  return static_cast<int64_t>(shares_.nbytes() + buffers_[0].nbytes() + buffers_[1].nbytes());
}

}  // namespace lathe::worker
