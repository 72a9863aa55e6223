// Collectives as computations use them: they either complete or end the rank.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "services/worker/collectives/collectives.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

// Thrown when a collective has failed: the ranks have diverged, and the process has to end. It is
// not a std::exception, so that code which turns those into the failure of one request does not
// catch it.
struct RanksDisagree {
  absl::Status status;
};

// The ranks of one sub-mesh, or a single rank, for which every call does nothing. Calls block and
// throw RanksDisagree. See Collectives for the tensors they take. Copies refer to the same group.
class RankGroup {
 public:
  RankGroup() = default;
  // `collectives` must outlive it.
  explicit RankGroup(Collectives& collectives) : collectives_(&collectives) {}

  int rank() const { return collectives_ == nullptr ? 0 : collectives_->rank(); }
  int world() const { return collectives_ == nullptr ? 1 : collectives_->world(); }
  bool is_alone() const { return world() == 1; }

  // Works in place. All ranks get the same bits.
  void Sum(std::string_view name, const at::Tensor& tensor) const;
  void Max(std::string_view name, const at::Tensor& tensor) const;
  // Returns [world, …]: every rank's `piece` […] in rank order.
  at::Tensor Gather(const CollectiveCall& call, const at::Tensor& piece) const;
  // Begins a Gather into `whole` [world, …]. The result must be passed to Wait. Needs a group of
  // several ranks.
  PendingCollective StartGather(std::string_view name, const at::Tensor& piece,
                                const at::Tensor& whole) const;
  void Wait(PendingCollective pending) const;
  // `tensor` becomes a copy of the tensor of rank `root`.
  void Broadcast(std::string_view name, int root, const at::Tensor& tensor) const;

  // Calls `replay`, which queues a recording that holds collectives of this group.
  void Replay(std::string_view name, const std::function<void()>& replay) const;

  // Call when this rank may be at another collective than the others. The limit applies to all
  // groups of the rank, see WaitLimit.
  void LimitWaits(std::string why) const;
  void LiftWaitLimit() const;

 private:
  Collectives* collectives_ = nullptr;
};

// The groups that a rank computes in.
struct RankGroups {
  RankGroup tp;    // ranks that hold the other parts of the same matrices
  RankGroup data;  // ranks that have the same part and compute other rows: axes dp and fsdp
  RankGroup fsdp;  // the ranks of `data` that share the base weights of one replica
  RankGroup all;   // all ranks of the mesh; for CPU tensors, even if the ranks compute on GPUs
};

}  // namespace lathe::worker
