// What computation sees of the other ranks: collectives that either are done or end the rank.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "services/worker/aten.h"
#include "services/worker/collectives/collectives.h"

namespace lathe::worker {

// Thrown when a collective has failed: the ranks do not agree any more, and the process has to end.
// No std::exception, so that nobody who turns those into the failure of one request takes it.
struct RanksDisagree {
  absl::Status status;
};

// The ranks of one sub-mesh, or one rank alone, for whom every call does nothing. Calls wait and
// throw RanksDisagree; see Collectives for what tensors they take. Copies are the same group.
class RankGroup {
 public:
  RankGroup() = default;
  // `collectives` must outlive it.
  explicit RankGroup(Collectives& collectives) : collectives_(&collectives) {}

  int rank() const { return collectives_ == nullptr ? 0 : collectives_->rank(); }
  int world() const { return collectives_ == nullptr ? 1 : collectives_->world(); }
  bool is_alone() const { return world() == 1; }

  // In place; the same bits on every rank.
  void Sum(std::string_view name, const at::Tensor& tensor) const;
  void Max(std::string_view name, const at::Tensor& tensor) const;
  // [world, …] of every rank's `piece` […], in the order of the ranks.
  at::Tensor Gather(const CollectiveCall& call, const at::Tensor& piece) const;
  // As Gather into `whole` [world, …], but only begins it; what it gives is for Wait. Of several
  // ranks only.
  PendingCollective StartGather(std::string_view name, const at::Tensor& piece,
                                const at::Tensor& whole) const;
  void Wait(PendingCollective pending) const;
  // `tensor` becomes that of rank `root`.
  void Broadcast(std::string_view name, int root, const at::Tensor& tensor) const;

  // This rank may not be where the others are: see WaitLimit, which is one of all its groups.
  void LimitWaits(std::string why) const;
  void LiftWaitLimit() const;

 private:
  Collectives* collectives_ = nullptr;
};

// Whom a rank computes with.
struct RankGroups {
  RankGroup tp;    // who hold the other parts of the same matrices
  RankGroup data;  // who have the same part and compute other rows: axes dp and fsdp
  RankGroup fsdp;  // of these, who each keep a share of its matrices
  RankGroup all;   // moves tensors of CPUs, whatever the others move
};

}  // namespace lathe::worker
