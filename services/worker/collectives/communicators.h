// All communicators of a rank.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/worker/collectives/collectives.h"
#include "services/worker/collectives/flight_recorder.h"
#include "services/worker/collectives/mesh.h"
#include "services/worker/collectives/rank_group.h"
#include "services/worker/collectives/rendezvous/rendezvous_socket.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

struct ConnectOptions {
  MeshShape mesh;
  int rank = 0;
  RendezvousPoint rendezvous;
  // Device of the tensors that tp, data and fsdp move. CPU tensors move over shared memory or Gloo,
  // GPU tensors over NCCL.
  at::Device device = at::kCPU;
  // Values that must be the same on every rank, by name. The mesh is added to them.
  std::map<std::string, std::string> must_agree;
  // Time for all ranks to arrive and to connect.
  absl::Duration rendezvous_timeout = absl::Seconds(60);
  // Timeout of a collective on tp: how much longer one rank may take than another for part of a
  // layer.
  absl::Duration timeout = absl::Seconds(10);
  // Timeout of a collective on data, fsdp or all ranks. There one rank may take longer for its rows
  // or for reading a disk. A rank that is gone is detected at once.
  absl::Duration patience = absl::Minutes(10);
  // Called with the first failure of each communicator, see CollectivesOptions.
  std::function<void(const absl::Status&)> on_failure = [](const absl::Status&) {};
};

// The communicators of one process. The groups that it returns are valid while it lives.
class Communicators {
 public:
  // Groups for computations. A sub-mesh of one rank is the empty RankGroup.
  const RankGroups& groups() const { return groups_; }
  // A second group of all ranks, for CPU tensors. The ranks use it to agree between passes.
  RankGroup control() const { return RankGroup(*control_); }
  // Traffic of all communicators so far. Any thread.
  Traffic traffic() const;

 private:
  friend absl::StatusOr<std::unique_ptr<Communicators>> ConnectRanks(std::optional<ListeningSocket>,
                                                                     const ConnectOptions&);
  Communicators() = default;

  FlightRecorder recorder_;
  std::unique_ptr<Collectives> tp_, data_, fsdp_, all_, control_;  // null: only one rank
  RankGroups groups_;
};

// Finds the other ranks at the rendezvous and connects to them. The mesh has several ranks, and
// every rank calls it. `socket` listens at the address of `options.rendezvous`, and is set on rank
// 0 only. FailedPrecondition: the ranks' options differ (the same error on all ranks), or this rank
// cannot listen at an address that others reach. DeadlineExceeded or Unavailable: a rank has not
// arrived, or is gone.
absl::StatusOr<std::unique_ptr<Communicators>> ConnectRanks(std::optional<ListeningSocket> socket,
                                                            const ConnectOptions& options);

}  // namespace lathe::worker
