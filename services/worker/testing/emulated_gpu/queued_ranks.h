// Ranks as threads whose collectives only queue, as NCCL's do.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/worker/collectives/rank_group.h"
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
    std::map<int, size_t> done;  // by rank
    const auto next_of = [&](int rank) -> const std::string* {
      const auto& order = orders_.at(rank);
      return done[rank] < order.size() ? &order[done[rank]] : nullptr;
    };
    while (true) {
      bool has_run = false;
      std::set<std::string> stuck;
      for (const auto& [rank, order] : orders_) {
        const std::string* const next = next_of(rank);
        if (next == nullptr) continue;
        stuck.insert(*next);
        // It runs if no rank that takes part has another one before it.
        bool is_next = true;
        std::vector<int> members;
        for (const auto& [other, theirs] : orders_) {
          if (std::ranges::find(theirs, *next) == theirs.end()) continue;
          members.push_back(other);
          const std::string* const of_other = next_of(other);
          is_next = is_next && of_other != nullptr && *of_other == *next;
        }
        if (!is_next) continue;
        for (const int member : members) ++done[member];
        has_run = true;
      }
      if (!has_run) return {stuck.begin(), stuck.end()};
    }
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
    return nullptr;
  }

  absl::Status Finish(const CollectiveOperation& operation, void*) override {
    return Execute(operation);
  }

  // Moves tensors over the host, so the ranks' tensors may be on any device.
  absl::Status Execute(const CollectiveOperation& operation) {
    const CollectiveCall call(operation.name, operation.timeout);
    if (operation.kind == CollectiveKind::kBarrier) return inner_.Barrier(call);
    const at::Tensor in = operation.input.to(at::kCPU, operation.dtype, false, /*copy=*/true);
    const bool is_in_place = operation.kind != CollectiveKind::kAllGather &&
                             operation.kind != CollectiveKind::kReduceScatterSum;
    const at::Tensor out = is_in_place ? in : at::empty({operation.output.numel()}, in.options());
    const absl::Status status = Execute(operation.kind, call, in, out, operation.root);
    if (status.ok()) at::Tensor(operation.output).copy_(out.view_as(operation.output));
    return status;
  }

  absl::Status Execute(CollectiveKind kind, const CollectiveCall& call, const at::Tensor& in,
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
};

// Runs `body(groups)` as every rank of `data` x `tp`, whose data ranks are one FSDP group. Returns
// the results in rank order.
template <typename Body>
auto AsQueuedMesh(int data, int tp, IssueOrder& order, Body&& body) {
  FlightRecorder recorder;
  std::vector<std::unique_ptr<Collectives>> inner, queued;
  // The communicators of each rank, by axis.
  std::map<std::string, std::vector<Collectives*>> by_axis;
  const auto connect = [&](const std::string& axis, const std::vector<int>& members) {
    auto ranks = MakeLocalCollectives(axis, static_cast<int>(members.size()),
                                      {.timeout = kTestPatience}, recorder);
    by_axis[axis].resize(data * tp);
    for (size_t i = 0; i < members.size(); ++i) {
      queued.push_back(std::make_unique<QueuedCollectives>(
          *ranks[i], absl::StrCat(axis, "[", absl::StrJoin(members, ","), "]"), members[i], order,
          recorder));
      by_axis[axis][members[i]] = queued.back().get();
      inner.push_back(std::move(ranks[i]));
    }
  };
  std::vector<int> all(data * tp);
  for (int rank = 0; rank < data * tp; ++rank) all[rank] = rank;
  for (int i = 0; i < data; ++i) connect("tp", {all.begin() + i * tp, all.begin() + (i + 1) * tp});
  for (int i = 0; i < tp; ++i) {
    std::vector<int> members;
    for (int j = 0; j < data; ++j) members.push_back(j * tp + i);
    connect("data", members);
    connect("fsdp", members);
  }
  connect("all", all);
  return InThreads(data * tp, [&](int rank) {
    return body(RankGroups{.tp = RankGroup(*by_axis["tp"][rank]),
                           .data = RankGroup(*by_axis["data"][rank]),
                           .fsdp = RankGroup(*by_axis["fsdp"][rank]),
                           .all = RankGroup(*by_axis["all"][rank])});
  });
}

}  // namespace lathe::worker
