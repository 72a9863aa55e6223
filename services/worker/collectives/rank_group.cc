#include "services/worker/collectives/rank_group.h"

#include <utility>
#include <vector>

namespace lathe::worker {
namespace {

void ThrowUnlessOk(absl::Status status) {
  if (!status.ok()) throw RanksDisagree{std::move(status)};
}

}  // namespace

void RankGroup::Sum(std::string_view name, const at::Tensor& tensor) const {
  if (!is_alone()) ThrowUnlessOk(collectives_->AllReduceSum(name, tensor));
}

void RankGroup::Max(std::string_view name, const at::Tensor& tensor) const {
  if (!is_alone()) ThrowUnlessOk(collectives_->AllReduceMax(name, tensor));
}

at::Tensor RankGroup::Gather(const CollectiveCall& call, const at::Tensor& piece) const {
  if (is_alone()) return piece.unsqueeze(0);
  std::vector<int64_t> shape = piece.sizes().vec();
  shape.insert(shape.begin(), world());
  at::Tensor whole = at::empty(shape, piece.options());
  ThrowUnlessOk(collectives_->AllGather(call, piece, whole));
  return whole;
}

PendingCollective RankGroup::StartGather(std::string_view name, const at::Tensor& piece,
                                         const at::Tensor& whole) const {
  TORCH_CHECK(collectives_ != nullptr, "a rank alone gathers nothing");
  absl::StatusOr<PendingCollective> pending = collectives_->StartAllGather(name, piece, whole);
  ThrowUnlessOk(pending.status());
  return *std::move(pending);
}

void RankGroup::Wait(PendingCollective pending) const {
  ThrowUnlessOk(collectives_->Wait(std::move(pending)));
}

void RankGroup::Replay(std::string_view name, const std::function<void()>& replay) const {
  if (is_alone()) return replay();
  ThrowUnlessOk(collectives_->Replay(name, replay));
}

void RankGroup::LimitWaits(std::string why) const {
  if (!is_alone()) collectives_->wait_limit().Set(std::move(why));
}

void RankGroup::LiftWaitLimit() const {
  if (!is_alone()) collectives_->wait_limit().Lift();
}

void RankGroup::Broadcast(std::string_view name, int root, const at::Tensor& tensor) const {
  if (!is_alone()) ThrowUnlessOk(collectives_->Broadcast(name, root, tensor));
}

}  // namespace lathe::worker
