// All that a rank speaks to the others with.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/worker/aten.h"
#include "services/worker/collectives/collectives.h"
#include "services/worker/collectives/flight_recorder.h"
#include "services/worker/collectives/local_address.h"
#include "services/worker/collectives/meeting.h"
#include "services/worker/collectives/mesh.h"
#include "services/worker/collectives/rank_group.h"

namespace lathe::worker {

struct ConnectOptions {
  MeshShape mesh;
  int rank = 0;
  Meeting meeting;
  // Of the tensors that tp, data and fsdp move: over shared memory or Gloo from a CPU, over NCCL
  // from a GPU.
  at::Device device = at::kCPU;
  // What must be the same on every rank, by its name; the mesh need not be told.
  std::map<std::string, std::string> must_agree;
  // For all ranks to come and to connect.
  absl::Duration meeting_timeout = absl::Seconds(60);
  // Of a collective on tp: what one rank may be slower than another at a part of a layer.
  absl::Duration timeout = absl::Seconds(10);
  // Of one on data or fsdp, or of all ranks, where one may be slower at its rows or at reading a
  // disk. One that is gone is known at once.
  absl::Duration patience = absl::Minutes(10);
  // The first failure of each communicator, see CollectivesOptions.
  std::function<void(const absl::Status&)> on_failure = [](const absl::Status&) {};
};

// One per process; what it gives out lives as long as it does.
class Communicators {
 public:
  // Sub-meshes of one rank are alone. `all` moves tensors of CPUs.
  const RankGroups& groups() const { return groups_; }
  // All ranks, tensors of CPUs: what they agree on between passes.
  RankGroup control() const { return RankGroup(*control_); }
  // Of all of them so far. Any thread.
  Traffic traffic() const;

 private:
  friend absl::StatusOr<std::unique_ptr<Communicators>> ConnectRanks(std::optional<ListeningSocket>,
                                                                     const ConnectOptions&);
  Communicators() = default;

  FlightRecorder recorder_;
  std::unique_ptr<Collectives> tp_, data_, fsdp_, all_, control_;  // null: alone
  RankGroups groups_;
};

// Meets the other ranks of a mesh of several and connects with them; each of them calls it. Rank 0
// brings the socket that the meeting names. FailedPrecondition: ranks do not agree, the same on all
// of them, or this one cannot listen where others would find it; DeadlineExceeded or Unavailable:
// one has not come, or is gone.
absl::StatusOr<std::unique_ptr<Communicators>> ConnectRanks(std::optional<ListeningSocket> socket,
                                                            const ConnectOptions& options);

}  // namespace lathe::worker
