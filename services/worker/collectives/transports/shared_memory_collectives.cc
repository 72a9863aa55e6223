// Hot path: every sum of a pass between ranks of one host.
#include "services/worker/collectives/transports/transports.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libs/common/logging/logging.h"
#include "libs/common/status_macros.h"
#include "services/worker/collectives/collectives.h"
#include "services/worker/collectives/transports/shared_segment.h"

namespace lathe::worker {
namespace {

uint64_t HashOf(std::string_view name) { return std::hash<std::string_view>()(name); }

// From this size on, each rank sums a part of an all-reduce, which costs a second round.
constexpr int64_t kSharedSumBytes = int64_t{64} << 10;

class SharedMemoryCollectives : public Collectives {
 public:
  SharedMemoryCollectives(SubMesh place, const CollectivesOptions& options,
                          FlightRecorder& recorder, std::unique_ptr<SharedSegment> segment)
      : Collectives(std::move(place), options, recorder), segment_(std::move(segment)) {}

 private:
  absl::Status Run(const CollectiveOperation& operation) override {
    const absl::Status status = RunRounds(operation);
    // Spares the other ranks waiting for their own deadlines.
    if (!status.ok()) segment_->Leave();
    return status;
  }

  absl::StatusOr<std::shared_ptr<void>> Start(const CollectiveOperation& operation) override {
    if (absl::Status status = Run(operation); !status.ok()) return status;
    return nullptr;
  }
  absl::Status Finish(const CollectiveOperation&, void*) override { return absl::OkStatus(); }

  absl::Status RunRounds(const CollectiveOperation& operation) {
    switch (operation.kind) {
      case CollectiveKind::kAllReduceSum:
      case CollectiveKind::kAllReduceMax:
        return AllReduce(operation);
      case CollectiveKind::kReduceScatterSum:
        return ReducePieces(operation);
      case CollectiveKind::kAllGather:
        return Gather(operation);
      case CollectiveKind::kBroadcast:
        return ReadRoot(operation);
      case CollectiveKind::kBarrier:
        return Synchronize(operation);
      case CollectiveKind::kReplay:
        break;
    }
    return absl::OkStatus();
  }

  absl::Status AllReduce(const CollectiveOperation& operation) {
    const int64_t most = ElementsFor(operation);
    for (int64_t begin = 0; begin < operation.output.numel(); begin += most) {
      at::Tensor part =
          operation.output.narrow(0, begin, std::min(most, operation.output.numel() - begin));
      Write(part, 0);
      RETURN_IF_ERROR(Synchronize(operation));
      const bool is_shared = world() > 2 && static_cast<int64_t>(part.nbytes()) >= kSharedSumBytes;
      if (!is_shared) {
        Reduce(operation, 0, part);
      } else {
        RETURN_IF_ERROR(ReduceTogether(operation, part));
      }
      SwapBuffers();
    }
    return absl::OkStatus();
  }

  // Each rank sums its part of `whole` in its own buffer. The others do not read that part before
  // the next round, in which all ranks read it.
  absl::Status ReduceTogether(const CollectiveOperation& operation, at::Tensor whole) {
    const int64_t size = whole.numel();
    const auto begin_of = [&](int64_t rank) { return rank * size / world(); };
    const int64_t own = begin_of(rank());
    at::Tensor sum = View(rank(), own, begin_of(rank() + 1) - own, whole);
    Reduce(operation, own, sum);
    RETURN_IF_ERROR(Synchronize(operation));
    for (int peer = 0; peer < world(); ++peer) {
      const int64_t begin = begin_of(peer);
      Read(peer, begin, whole.narrow(0, begin, begin_of(peer + 1) - begin));
    }
    return absl::OkStatus();
  }

  absl::Status ReducePieces(const CollectiveOperation& operation) {
    const int64_t size = operation.output.numel();
    const int64_t most = ElementsFor(operation) / world();
    for (int64_t begin = 0; begin < size; begin += most) {
      const int64_t count = std::min(most, size - begin);
      for (int peer = 0; peer < world(); ++peer) {
        Write(operation.input.narrow(0, peer * size + begin, count), peer * count);
      }
      RETURN_IF_ERROR(Synchronize(operation));
      at::Tensor piece = operation.output.narrow(0, begin, count);
      Reduce(operation, rank() * count, piece);
      SwapBuffers();
    }
    return absl::OkStatus();
  }

  absl::Status Gather(const CollectiveOperation& operation) {
    const int64_t size = operation.input.numel();
    const int64_t most = ElementsFor(operation);
    for (int64_t begin = 0; begin < size; begin += most) {
      const int64_t count = std::min(most, size - begin);
      Write(operation.input.narrow(0, begin, count), 0);
      RETURN_IF_ERROR(Synchronize(operation));
      for (int peer = 0; peer < world(); ++peer) {
        Read(peer, 0, operation.output.narrow(0, peer * size + begin, count));
      }
      SwapBuffers();
    }
    return absl::OkStatus();
  }

  absl::Status ReadRoot(const CollectiveOperation& operation) {
    const int64_t most = ElementsFor(operation);
    for (int64_t begin = 0; begin < operation.output.numel(); begin += most) {
      at::Tensor part =
          operation.output.narrow(0, begin, std::min(most, operation.output.numel() - begin));
      if (rank() == operation.root) Write(part, 0);
      RETURN_IF_ERROR(Synchronize(operation));
      if (rank() != operation.root) Read(operation.root, 0, part);
      SwapBuffers();
    }
    return absl::OkStatus();
  }

  // Enters a round and waits for all other ranks.
  absl::Status Synchronize(const CollectiveOperation& operation) {
    const RoundSignature own = {.number = operation.number,
                                .payload_bytes = operation.payload_bytes,
                                .name_hash = HashOf(operation.name),
                                .kind = static_cast<int32_t>(operation.kind),
                                .dtype = static_cast<int32_t>(operation.dtype),
                                .root = operation.root};
    segment_->Enter(own);
    for (int step = 1; step < world(); ++step) {
      const int peer = (rank() + step) % world();
      RETURN_IF_ERROR(AwaitRank(operation, peer));
      if (segment_->signature(peer) != own) return OtherCall(operation, peer);
    }
    return absl::OkStatus();
  }

  absl::Status AwaitRank(const CollectiveOperation& operation, int peer) {
    const auto peer_name = [&] {
      return absl::StrFormat("rank %d (%d in the mesh)", peer, place().ranks[peer]);
    };
    switch (segment_->Await(peer, operation.deadline())) {
      case SharedSegment::Arrival::kHere:
        return absl::OkStatus();
      case SharedSegment::Arrival::kGone:
        return absl::UnavailableError(
            absl::StrCat("connection to ", peer_name(), " is lost: it has left"));
      case SharedSegment::Arrival::kLate:
        return absl::DeadlineExceededError(absl::StrFormat("deadline of %s is over, waiting for %s",
                                                           absl::FormatDuration(operation.timeout),
                                                           peer_name()));
    }
    return absl::OkStatus();
  }

  absl::Status OtherCall(const CollectiveOperation& operation, int peer) const {
    const RoundSignature& theirs = segment_->signature(peer);
    return absl::UnavailableError(absl::StrFormat(
        "rank %d called %s, number %d, %d bytes of %s, root %d%s", peer,
        NameOf(static_cast<CollectiveKind>(theirs.kind)), theirs.number, theirs.payload_bytes,
        c10::toString(static_cast<at::ScalarType>(theirs.dtype)), theirs.root,
        theirs.name_hash == HashOf(operation.name) ? "" : ", under another name"));
  }

  // Reduces all ranks' buffers from element `begin` on into `out`, which may lie in this rank's
  // buffer.
  void Reduce(const CollectiveOperation& operation, int64_t begin, at::Tensor& out) const {
    std::vector<at::Tensor> parts;
    for (int peer = 0; peer < world(); ++peer) {
      parts.push_back(View(peer, begin, out.numel(), out));
    }
    ReduceInRankOrder(operation.kind, parts, out);
  }

  // Returns `count` elements of `peer`'s current buffer, with the dtype of `like`.
  at::Tensor View(int peer, int64_t begin, int64_t count, const at::Tensor& like) const {
    return at::from_blob(segment_->buffer(peer, buffer_) + begin * like.element_size(), {count},
                         like.options());
  }
  void Write(const at::Tensor& from, int64_t begin) const {
    std::memcpy(segment_->buffer(rank(), buffer_) + begin * from.element_size(),
                from.const_data_ptr(), from.nbytes());
  }
  void Read(int peer, int64_t begin, const at::Tensor& to) const {
    std::memcpy(to.mutable_data_ptr(), segment_->buffer(peer, buffer_) + begin * to.element_size(),
                to.nbytes());
  }

  // The current buffers are read in this round; the next round writes the other ones.
  void SwapBuffers() { buffer_ = 1 - buffer_; }

  static int64_t ElementsFor(const CollectiveOperation& operation) {
    return SharedSegment::kBufferBytes / operation.output.element_size();
  }

  const std::unique_ptr<SharedSegment> segment_;
  int buffer_ = 0;
};

// Creates the memory on rank 0, or maps rank 0's memory. Exchanges the handle and each rank's error
// under keys that begin with `prefix`.
absl::StatusOr<std::unique_ptr<SharedSegment>> Attach(Rendezvous& rendezvous,
                                                      const std::string& prefix,
                                                      const SubMesh& place) {
  const auto reason_of = [&](const absl::StatusOr<std::unique_ptr<SharedSegment>>& segment) {
    return segment.ok() ? std::string() : std::string(segment.status().message());
  };
  if (place.rank == 0) {
    auto segment = SharedSegment::Create(place.world());
    RETURN_IF_ERROR(rendezvous.Set(absl::StrCat(prefix, "reason/0"), reason_of(segment)));
    RETURN_IF_ERROR(rendezvous.Set(absl::StrCat(prefix, "handle"),
                                   segment.ok() ? (*segment)->handle() : "none"));
    return segment;
  }
  ASSIGN_OR_RETURN(const std::string handle, rendezvous.Get(absl::StrCat(prefix, "handle")));
  auto segment = SharedSegment::Open(handle, place.rank, place.world());
  RETURN_IF_ERROR(rendezvous.Set(absl::StrCat(prefix, "reason/", place.rank), reason_of(segment)));
  return segment;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Collectives>> ConnectSharedMemory(Rendezvous& rendezvous,
                                                                 const SubMesh& place,
                                                                 const CollectivesOptions& options,
                                                                 FlightRecorder& recorder) {
  const std::string prefix = absl::StrCat("shared/", place.axis, "/", place.ranks.front(), "/");
  auto segment = Attach(rendezvous, prefix, place);
  for (int rank = 0; rank < place.world(); ++rank) {
    ASSIGN_OR_RETURN(const std::string reason,
                     rendezvous.Get(absl::StrCat(prefix, "reason/", rank)));
    if (reason.empty()) continue;
    return absl::FailedPreconditionError(
        absl::StrFormat("ranks of axis %s share no memory: rank %d (%d in the mesh): %s",
                        place.axis, rank, place.ranks[rank], reason));
  }
  RETURN_IF_ERROR(segment.status());
  (*segment)->WatchOthers();
  return std::make_unique<SharedMemoryCollectives>(place, options, recorder, *std::move(segment));
}

absl::StatusOr<std::unique_ptr<Collectives>> ConnectCpus(
    Rendezvous& rendezvous, std::shared_ptr<gloo::transport::Device> device, const SubMesh& place,
    const CollectivesOptions& options, FlightRecorder& recorder) {
  auto shared = ConnectSharedMemory(rendezvous, place, options, recorder);
  if (!absl::IsFailedPrecondition(shared.status())) return shared;
  LogInfo("ranks communicate over Gloo", {{"reason", shared.status().message()}});
  return ConnectGloo(rendezvous, std::move(device), place, options, recorder);
}

}  // namespace lathe::worker
