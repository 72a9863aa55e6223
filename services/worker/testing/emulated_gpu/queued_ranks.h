// Ranks as threads whose collectives only queue, as NCCL's do.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/worker/collectives/mesh.h"
#include "services/worker/collectives/rank_group.h"
#include "services/worker/testing/emulated_gpu/emulated_gpu.h"
#include "services/worker/testing/test_ranks.h"

namespace lathe::worker {

// The order in which each rank issued its collectives, over all its communicators.
class IssueOrder {
 public:
  // `collective` is the same text on all ranks that take part.
  void Add(int rank, const std::string& collective) {
    const std::lock_guard lock(mutex_);
    orders_[rank].push_back(collective);
  }

  // Returns collectives that wait for each other if the device runs each rank's in their order;
  // empty: there are none. NCCL's kernels of two communicators may hang then.
  std::vector<std::string> FindCycle() const {
    const std::lock_guard lock(mutex_);
    std::map<std::string, std::vector<int>> members;
    std::vector<int> going_on;
    for (const auto& [rank, order] : orders_) {
      for (const std::string& collective : order) members[collective].push_back(rank);
      going_on.push_back(rank);
    }
    std::map<int, size_t> done;                 // by rank
    std::map<std::string, size_t> num_waiting;  // a collective runs when all its ranks wait in it
    while (!going_on.empty()) {
      const int rank = going_on.back();
      going_on.pop_back();
      const std::vector<std::string>& order = orders_.at(rank);
      if (done[rank] == order.size()) continue;
      const std::string& next = order[done[rank]];
      if (++num_waiting[next] < members[next].size()) continue;
      num_waiting.erase(next);
      for (const int member : members[next]) ++done[member];
      going_on.insert(going_on.end(), members[next].begin(), members[next].end());
    }
    std::vector<std::string> stuck;
    for (const auto& [collective, count] : num_waiting) stuck.push_back(collective);
    return stuck;
  }

  size_t size() const {
    const std::lock_guard lock(mutex_);
    size_t size = 0;
    for (const auto& [rank, order] : orders_) size += order.size();
    return size;
  }

 private:
  mutable std::mutex mutex_;
  std::map<int, std::vector<std::string>> orders_;
};

// Calls whose transfer a device can hide: the rank queued work between their start and their wait.
struct HiddenCalls {
  int64_t num_calls = 0;
  int64_t wire_bytes = 0;
};
using HiddenByName = std::map<std::string, HiddenCalls>;

// A communicator of one rank. An all-gather that was started runs when it is waited for, and until
// then its output holds NaN: a missing wait shows as wrong data. The ranks meet over `inner`.
class QueuedCollectives : public Collectives {
 public:
  // `group` is the name of the sub-mesh, different from those of all others. `mesh_rank` is the
  // rank in the mesh. `inner`, `order` and `recorder` must outlive this object.
  QueuedCollectives(Collectives& inner, std::string group, int mesh_rank, IssueOrder& order,
                    FlightRecorder& recorder,
                    const CollectivesOptions& options = {.timeout = kTestPatience})
      : Collectives(
            SubMesh{.axis = inner.axis(), .ranks = RanksTo(inner.world()), .rank = inner.rank()},
            options, recorder),
        inner_(inner),
        group_(std::move(group)),
        mesh_rank_(mesh_rank),
        order_(order) {}

  // For the rank's own thread.
  const HiddenByName& hidden() const { return hidden_; }

 protected:
  absl::Status Run(const CollectiveOperation& operation) override {
    Issue(operation);
    return Execute(operation);
  }

 private:
  static std::vector<int> RanksTo(int world) {
    std::vector<int> ranks(world);
    for (int i = 0; i < world; ++i) ranks[i] = i;
    return ranks;
  }

  void Issue(const CollectiveOperation& operation) {
    order_.Add(mesh_rank_, absl::StrFormat("%s %d: %s", group_, operation.number, operation.name));
  }

  absl::StatusOr<std::shared_ptr<void>> Start(const CollectiveOperation& operation) override {
    Issue(operation);
    if (!operation.input.is_alias_of(operation.output)) {
      operation.output.view(at::kByte).fill_(0xff);
    }
    return std::make_shared<int64_t>(WorkOfThread().num_launches);
  }

  absl::Status Finish(const CollectiveOperation& operation, void* work) override {
    if (WorkOfThread().num_launches > *static_cast<const int64_t*>(work)) {
      HiddenCalls& hidden = hidden_[std::string(operation.name)];
      ++hidden.num_calls;
      hidden.wire_bytes += WireBytes(operation.kind, world(), operation.payload_bytes,
                                     /*is_root=*/operation.root == rank());
    }
    return Execute(operation);
  }

  // Moves tensors over the host, so the ranks' tensors may be on any device. That is no work of the
  // rank's.
  absl::Status Execute(const CollectiveOperation& operation) {
    const ThreadWork before = WorkOfThread();
    const absl::Status status = Move(operation);
    WorkOfThread() = before;
    return status;
  }

  absl::Status Move(const CollectiveOperation& operation) {
    const CollectiveCall call(operation.name, operation.timeout);
    if (operation.kind == CollectiveKind::kBarrier) return inner_.Barrier(call);
    const at::Tensor in = operation.input.to(at::kCPU, operation.dtype, false, /*copy=*/true);
    const bool is_in_place = operation.kind != CollectiveKind::kAllGather &&
                             operation.kind != CollectiveKind::kReduceScatterSum;
    const at::Tensor out = is_in_place ? in : at::empty({operation.output.numel()}, in.options());
    const absl::Status status = Call(operation.kind, call, in, out, operation.root);
    if (status.ok()) at::Tensor(operation.output).copy_(out.view_as(operation.output));
    return status;
  }

  absl::Status Call(CollectiveKind kind, const CollectiveCall& call, const at::Tensor& in,
                    const at::Tensor& out, int root) {
    switch (kind) {
      case CollectiveKind::kAllReduceSum:
        return inner_.AllReduceSum(call, out);
      case CollectiveKind::kAllReduceMax:
        return inner_.AllReduceMax(call, out);
      case CollectiveKind::kAllGather:
        return inner_.AllGather(call, in, out);
      case CollectiveKind::kReduceScatterSum:
        return inner_.ReduceScatterSum(call, in, out);
      case CollectiveKind::kBroadcast:
        return inner_.Broadcast(call, root, out);
      case CollectiveKind::kBarrier:
      case CollectiveKind::kReplay:
        break;
    }
    return inner_.Barrier(call);
  }

  Collectives& inner_;
  const std::string group_;
  const int mesh_rank_;
  IssueOrder& order_;
  HiddenByName hidden_;
};

// The ranks of a mesh, whose collectives only queue. `order` must outlive it.
class QueuedMesh {
 public:
  QueuedMesh(const MeshShape& shape, IssueOrder& order) : ranks_(shape.world()) {
    for (int rank = 0; rank < shape.world(); ++rank) {
      const Mesh mesh = Mesh::Create(shape, rank, shape.world()).value();
      for (const SubMesh& place :
           {mesh.Along({Axis::kTp}), mesh.Along({Axis::kDp, Axis::kFsdp}),
            mesh.Along({Axis::kFsdp}), mesh.Along({Axis::kDp, Axis::kFsdp, Axis::kTp})}) {
        if (place.rank == 0 && place.world() > 1) Connect(place, order);
      }
    }
  }

  int world() const { return static_cast<int>(ranks_.size()); }

  // As a rank of a service has them: a group of one rank is the empty RankGroup.
  RankGroups groups(int rank) const {
    return {.tp = GroupOf(rank, "tp"),
            .data = GroupOf(rank, "dp.fsdp"),
            .fsdp = GroupOf(rank, "fsdp"),
            .all = GroupOf(rank, "dp.fsdp.tp")};
  }

  // The rank's calls so far, by axis. hidden() is for the rank's own thread.
  Traffic traffic(int rank) const {
    Traffic traffic;
    for (const auto& [axis, rank_of_axis] : ranks_[rank]) traffic[axis] = rank_of_axis->traffic();
    return traffic;
  }
  std::map<std::string, HiddenByName> hidden(int rank) const {
    std::map<std::string, HiddenByName> hidden;
    for (const auto& [axis, rank_of_axis] : ranks_[rank]) hidden[axis] = rank_of_axis->hidden();
    return hidden;
  }

 private:
  // `place` is that of the first rank of a sub-mesh.
  void Connect(const SubMesh& place, IssueOrder& order) {
    auto inner =
        MakeLocalCollectives(place.axis, place.world(), {.timeout = kTestPatience}, recorder_);
    const std::string name = absl::StrCat(place.axis, "[", absl::StrJoin(place.ranks, ","), "]");
    for (int i = 0; i < place.world(); ++i) {
      const int rank = place.ranks[i];
      ranks_[rank][place.axis] =
          std::make_unique<QueuedCollectives>(*inner[i], name, rank, order, recorder_);
      inner_.push_back(std::move(inner[i]));
    }
  }

  RankGroup GroupOf(int rank, const std::string& axis) const {
    const auto found = ranks_[rank].find(axis);
    return found == ranks_[rank].end() ? RankGroup() : RankGroup(*found->second);
  }

  FlightRecorder recorder_;
  std::vector<std::unique_ptr<Collectives>> inner_;
  std::vector<std::map<std::string, std::unique_ptr<QueuedCollectives>>> ranks_;
};

// Runs `body(groups)` as every rank of a mesh. Returns the results in rank order.
template <typename Body>
auto AsQueuedMesh(const MeshShape& shape, IssueOrder& order, Body&& body) {
  const QueuedMesh mesh(shape, order);
  return InThreads(mesh.world(), [&](int rank) { return body(mesh.groups(rank)); });
}

}  // namespace lathe::worker
