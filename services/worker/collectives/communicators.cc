#include "services/worker/collectives/communicators.h"

#include <utility>

#include "libs/common/logging/logging.h"
#include "libs/common/status_macros.h"
#include "services/worker/collectives/rendezvous/keep_alive.h"
#include "services/worker/collectives/rendezvous/rendezvous.h"
#include "services/worker/collectives/transports/transports.h"

namespace lathe::worker {
namespace {

absl::StatusOr<std::unique_ptr<Rendezvous>> OpenRendezvous(std::optional<ListeningSocket> socket,
                                                           const ConnectOptions& options) {
  RendezvousOptions join{.rank = options.rank,
                         .world = options.mesh.world(),
                         .session = options.rendezvous.session,
                         .must_agree = options.must_agree,
                         .timeout = options.rendezvous_timeout};
  join.must_agree["mesh"] = options.mesh.ToString();
  if (options.rank != 0) {
    return Rendezvous::Join(options.rendezvous.address, options.rendezvous.port, join);
  }
  if (!socket.has_value()) return absl::InternalError("rank 0 has no rendezvous socket");
  return Rendezvous::Serve(*std::move(socket), join);
}

// Connects one sub-mesh after another. Every rank connects the same ones in the same order.
class Connector {
 public:
  static absl::StatusOr<Connector> Create(Rendezvous& rendezvous, FlightRecorder& recorder,
                                          const ConnectOptions& options) {
    ASSIGN_OR_RETURN(const std::string address, LocalAddressTowards(options.rendezvous.address));
    ASSIGN_OR_RETURN(std::shared_ptr<gloo::transport::Device> device, OpenGlooDevice(address));
    return Connector(rendezvous, recorder, options, std::move(device));
  }

  // Returns null if the sub-mesh has one rank.
  absl::StatusOr<std::unique_ptr<Collectives>> Connect(const SubMesh& place, bool moves_cpu_tensors,
                                                       absl::Duration timeout) const {
    if (place.world() == 1) return nullptr;
    const CollectivesOptions collectives{.timeout = timeout,
                                         .connect_timeout = options_.rendezvous_timeout,
                                         .on_failure = options_.on_failure,
                                         .wait_limit = wait_limit_};
    if (moves_cpu_tensors || options_.device.is_cpu()) {
      return ConnectCpus(rendezvous_, gloo_device_, place, collectives, recorder_);
    }
    return ConnectNccl(rendezvous_, options_.device, place, collectives, recorder_);
  }

 private:
  Connector(Rendezvous& rendezvous, FlightRecorder& recorder, const ConnectOptions& options,
            std::shared_ptr<gloo::transport::Device> gloo_device)
      : rendezvous_(rendezvous),
        recorder_(recorder),
        options_(options),
        gloo_device_(std::move(gloo_device)) {}

  Rendezvous& rendezvous_;
  FlightRecorder& recorder_;
  const ConnectOptions& options_;
  std::shared_ptr<gloo::transport::Device> gloo_device_;
  std::shared_ptr<WaitLimit> wait_limit_ = std::make_shared<WaitLimit>();
};

// Longest silence of a rank's host. The engine waits as long for a silent worker, so a short outage
// ends neither.
constexpr absl::Duration kLongestSilence = absl::Seconds(15);

RankGroup GroupOf(const std::unique_ptr<Collectives>& collectives) {
  return collectives == nullptr ? RankGroup() : RankGroup(*collectives);
}

}  // namespace

Traffic Communicators::traffic() const {
  Traffic traffic;
  for (const auto* collectives : {&tp_, &data_, &fsdp_, &all_, &control_}) {
    if (*collectives != nullptr) traffic[(*collectives)->axis()] = (*collectives)->traffic();
  }
  return traffic;
}

absl::StatusOr<std::unique_ptr<Communicators>> ConnectRanks(std::optional<ListeningSocket> socket,
                                                            const ConnectOptions& options) {
  ASSIGN_OR_RETURN(const Mesh mesh, Mesh::Create(options.mesh, options.rank, options.mesh.world()));
  std::unique_ptr<Communicators> ranks(new Communicators());
  // Destroyed at the end of this function: no rank may join or write to the store afterwards.
  ASSIGN_OR_RETURN(const std::unique_ptr<Rendezvous> rendezvous,
                   OpenRendezvous(std::move(socket), options));
  ASSIGN_OR_RETURN(const Connector connector,
                   Connector::Create(*rendezvous, ranks->recorder_, options));
  const auto connect = [&](std::initializer_list<Axis> axes, bool moves_cpu_tensors,
                           absl::Duration timeout) {
    return connector.Connect(mesh.Along(axes), moves_cpu_tensors, timeout);
  };
  ASSIGN_OR_RETURN(ranks->tp_, connect({Axis::kTp}, false, options.timeout));
  // Ranks with fewer rows wait for ranks with more, and a long sequence may take long.
  ASSIGN_OR_RETURN(ranks->data_, connect({Axis::kDp, Axis::kFsdp}, false, options.patience));
  ASSIGN_OR_RETURN(ranks->fsdp_, connect({Axis::kFsdp}, false, options.patience));
  ASSIGN_OR_RETURN(ranks->all_,
                   connect({Axis::kDp, Axis::kFsdp, Axis::kTp}, true, options.patience));
  SubMesh all_ranks = mesh.Along({Axis::kDp, Axis::kFsdp, Axis::kTp});
  all_ranks.axis = "control";
  ASSIGN_OR_RETURN(ranks->control_, connector.Connect(all_ranks, true, options.patience));
  ranks->groups_ = {.tp = GroupOf(ranks->tp_),
                    .data = GroupOf(ranks->data_),
                    .fsdp = GroupOf(ranks->fsdp_),
                    .all = GroupOf(ranks->all_)};
  KeepConnectionsAlive(kLongestSilence);
  // Rank 0 must keep the store until every rank has read from it.
  RETURN_IF_ERROR(ranks->control_->Barrier("connected"));
  LogInfo("ranks are connected", {{"mesh", options.mesh.ToString()}, {"rank", options.rank}});
  return ranks;
}

}  // namespace lathe::worker
