// This file uses only the connections, send and recv of c10d's process group. Its own collectives
// do not fit:
//
// Its all-reduce is Gloo's ring. All ranks get the same bits, but the order of a sum depends on the
// element's position in the buffer: chunk c of n is summed in the order c-1, c-2, … of the ranks.
// (Source: gloo/allreduce.cc. Checked with torch 2.13 in worlds of 3 and 4: all ranks' results had
// equal hashes, every element was the sum in one of these n orders, and 8 to 42 % of them were not
// the sum in rank order.) With more than two ranks, a row's sum would depend on its neighbours in
// the batch, and a gradient's on what shares its bucket. Here every sum is in rank order, as in
// LocalCollectives.
//
// Its reduce-scatter is an all-reduce, with twice the bytes. Its all-gather copies everything once
// more. All its collectives go through an extra thread, which send and recv do not need.
//
// Bytes on the wire match WireBytes(). All-reduces of 1.2 MB in worlds of 2, 3 and 4 should move
// 14.40 MB and moved 14.47 MB, headers and set-up included, over a separate loopback device.
#include "services/worker/collectives/transports/transports.h"

// c10d's header is empty without this macro; the torch wheel was built with it. The wheel lacks
// Gloo's own headers. Debian's (libgloo-dev) are older than the Gloo inside libtorch, so only names
// of types behind pointers are used from them.
#define USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <algorithm>
#include <array>
#include <csignal>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libs/common/status_macros.h"
#include "libs/common/time/clock.h"
#include "services/worker/collectives/collectives.h"

namespace lathe::worker {
namespace {

// Bytes of a segment from all peers together. Two segments are in flight, so that transfer overlaps
// summing.
constexpr int64_t kSegmentBytes = 1 << 20;

struct Range {
  int64_t begin = 0;
  int64_t size = 0;
};

// A pending send or recv, and its peer.
struct Transfer {
  int peer = 0;
  c10::intrusive_ptr<c10d::Work> work;
};

using Transfers = std::vector<Transfer>;

std::string FirstLine(const std::exception& error) {
  const std::string_view text = error.what();
  return std::string(text.substr(0, text.find('\n')));
}

class GlooCollectives : public Collectives {
 public:
  GlooCollectives(SubMesh place, const CollectivesOptions& options, FlightRecorder& recorder,
                  c10::intrusive_ptr<c10d::ProcessGroupGloo> group)
      : Collectives(std::move(place), options, recorder), group_(std::move(group)) {}

 private:
  absl::Status Run(const CollectiveOperation& operation) override {
    switch (operation.kind) {
      case CollectiveKind::kAllReduceSum:
      case CollectiveKind::kAllReduceMax:
        return AllReduce(operation);
      case CollectiveKind::kReduceScatterSum:
        return ReducePieces(operation, Parts(operation.input.numel()), operation.output);
      case CollectiveKind::kAllGather: {
        ASSIGN_OR_RETURN(const std::shared_ptr<void> work, Start(operation));
        return Finish(operation, work.get());
      }
      case CollectiveKind::kBroadcast:
        return SendFromRoot(operation);
      case CollectiveKind::kBarrier:
        return Synchronize(operation);
      case CollectiveKind::kReplay:
        break;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::shared_ptr<void>> Start(const CollectiveOperation& operation) override {
    const std::vector<Range> parts = Parts(operation.output.numel());
    at::Tensor own = Slice(operation.output, parts[rank()]);
    if (own.const_data_ptr() != operation.input.const_data_ptr()) own.copy_(operation.input);
    auto transfers = std::make_shared<Transfers>();
    RETURN_IF_ERROR(Gather(operation, operation.output, parts, *transfers));
    return transfers;
  }

  absl::Status Finish(const CollectiveOperation& operation, void* work) override {
    return Await(operation, *static_cast<Transfers*>(work));
  }

  // With two ranks, both send everything and both sum: the bytes of a ring, but one transfer
  // latency instead of two.
  absl::Status AllReduce(const CollectiveOperation& operation) {
    at::Tensor whole = operation.output;
    if (world() == 2) {
      return ReducePieces(operation, {2, Range{.begin = 0, .size = whole.numel()}}, whole);
    }
    const std::vector<Range> parts = Parts(whole.numel());
    RETURN_IF_ERROR(ReducePieces(operation, parts, Slice(whole, parts[rank()])));
    Transfers transfers;
    RETURN_IF_ERROR(Gather(operation, whole, parts, transfers));
    return Await(operation, transfers);
  }

  // Reduces, over all ranks, the part parts[rank()] of the operation's input into `result`. Each
  // rank reduces its own part. Segments are pipelined: the next one is transferred while this one
  // is summed.
  absl::Status ReducePieces(const CollectiveOperation& operation, const std::vector<Range>& parts,
                            at::Tensor result) {
    const int64_t longest = std::ranges::max(parts, {}, &Range::size).size;
    const int64_t step = std::max<int64_t>(
        1, kSegmentBytes / operation.input.element_size() / std::max(1, world() - 1));
    std::array<Transfers, 2> transfers;
    std::array<std::vector<at::Tensor>, 2> received;
    const auto post = [&](int64_t begin) {
      const size_t slot = begin / step % 2;
      return PostSegment(operation, parts, {.begin = begin, .size = step}, transfers[slot],
                         received[slot]);
    };
    if (longest > 0) RETURN_IF_ERROR(post(0));
    for (int64_t begin = 0; begin < longest; begin += step) {
      const size_t slot = begin / step % 2;
      if (begin + step < longest) RETURN_IF_ERROR(post(begin + step));
      RETURN_IF_ERROR(Await(operation, transfers[slot]));
      const Range own =
          Within({.begin = 0, .size = result.numel()}, {.begin = begin, .size = step});
      if (own.size == 0) continue;
      at::Tensor target = Slice(result, own);
      ReduceInRankOrder(operation.kind, received[slot], target);
    }
    return absl::OkStatus();
  }

  // Sends every other rank its part of `segment`. Sets `received`, by rank, to the tensors that
  // this rank's part of the segment will be summed from.
  absl::Status PostSegment(const CollectiveOperation& operation, const std::vector<Range>& parts,
                           const Range& segment, Transfers& transfers,
                           std::vector<at::Tensor>& received) {
    const Range own = Within(parts[rank()], segment);
    received.resize(world());
    for (int peer = 0; peer < world(); ++peer) {
      if (peer == rank()) {
        received[peer] = Slice(operation.input, own);
        continue;
      }
      received[peer] = received[peer].defined() && received[peer].numel() >= own.size
                           ? Slice(received[peer], {.begin = 0, .size = own.size})
                           : at::empty({own.size}, operation.input.options());
      RETURN_IF_ERROR(Receive(operation, peer, received[peer], transfers));
    }
    for (int step = 1; step < world(); ++step) {
      const int peer = (rank() + step) % world();
      RETURN_IF_ERROR(
          Send(operation, peer, Slice(operation.input, Within(parts[peer], segment)), transfers));
    }
    return absl::OkStatus();
  }

  // Starts the exchange of the ranks' parts of `whole`.
  absl::Status Gather(const CollectiveOperation& operation, const at::Tensor& whole,
                      const std::vector<Range>& parts, Transfers& transfers) {
    for (int step = 1; step < world(); ++step) {
      const int peer = (rank() + step) % world();
      RETURN_IF_ERROR(Receive(operation, peer, Slice(whole, parts[peer]), transfers));
    }
    for (int step = 1; step < world(); ++step) {
      const int peer = (rank() + step) % world();
      RETURN_IF_ERROR(Send(operation, peer, Slice(whole, parts[rank()]), transfers));
    }
    return absl::OkStatus();
  }

  absl::Status SendFromRoot(const CollectiveOperation& operation) {
    Transfers transfers;
    if (rank() != operation.root) {
      RETURN_IF_ERROR(Receive(operation, operation.root, operation.output, transfers));
      return Await(operation, transfers);
    }
    for (int step = 1; step < world(); ++step) {
      RETURN_IF_ERROR(Send(operation, (rank() + step) % world(), operation.input, transfers));
    }
    return Await(operation, transfers);
  }

  // Every rank sends one byte to every other rank.
  absl::Status Synchronize(const CollectiveOperation& operation) {
    at::Tensor bytes = at::zeros({world()}, at::kByte);
    Transfers transfers;
    RETURN_IF_ERROR(Gather(operation, bytes, Parts(world()), transfers));
    return Await(operation, transfers);
  }

  absl::Status Send(const CollectiveOperation& operation, int peer, const at::Tensor& tensor,
                    Transfers& transfers) {
    if (tensor.numel() == 0) return absl::OkStatus();
    return Guarded(operation, peer, [&] {
      std::vector<at::Tensor> tensors{tensor};
      transfers.push_back({peer, group_->send(tensors, peer, TagOf(operation))});
    });
  }

  absl::Status Receive(const CollectiveOperation& operation, int peer, const at::Tensor& tensor,
                       Transfers& transfers) {
    if (tensor.numel() == 0) return absl::OkStatus();
    return Guarded(operation, peer, [&] {
      std::vector<at::Tensor> tensors{tensor};
      transfers.push_back({peer, group_->recv(tensors, peer, TagOf(operation))});
    });
  }

  absl::Status Await(const CollectiveOperation& operation, Transfers& transfers) {
    for (Transfer& transfer : transfers) {
      RETURN_IF_ERROR(Guarded(operation, transfer.peer, [&] {
        // Gloo counts whole milliseconds. Rounded down, it would give up before the deadline, and
        // the timeout would read as a lost connection. A timeout of zero would mean no timeout.
        const absl::Duration rest =
            absl::Ceil(operation.deadline() - SteadyNow(), absl::Milliseconds(1));
        transfer.work->wait(absl::ToChronoMilliseconds(std::max(rest, absl::Milliseconds(1))));
      }));
    }
    transfers.clear();
    return absl::OkStatus();
  }

  template <typename Body>
  absl::Status Guarded(const CollectiveOperation& operation, int peer, Body&& body) {
    try {
      body();
      return absl::OkStatus();
    } catch (const std::exception& error) {
      const std::string peer_name =
          absl::StrFormat("rank %d (%d in the mesh)", peer, place().ranks[peer]);
      if (SteadyNow() >= operation.deadline()) {
        return absl::DeadlineExceededError(absl::StrFormat("deadline of %s is over, waiting for %s",
                                                           absl::FormatDuration(operation.timeout),
                                                           peer_name));
      }
      return absl::UnavailableError(
          absl::StrFormat("connection to %s is lost: %s", peer_name, FirstLine(error)));
    }
  }

  // The tag matches messages to their collective, so that several collectives may be in flight.
  static int TagOf(const CollectiveOperation& operation) {
    return static_cast<int>(operation.number & 0x7fffffff);
  }

  // Splits `size` elements into one part for each rank, as evenly as possible.
  std::vector<Range> Parts(int64_t size) const {
    std::vector<Range> parts;
    for (int64_t peer = 0; peer < world(); ++peer) {
      const int64_t begin = peer * size / world();
      parts.push_back({.begin = begin, .size = (peer + 1) * size / world() - begin});
    }
    return parts;
  }

  // `segment` is relative to the beginning of `part`.
  static Range Within(const Range& part, const Range& segment) {
    const int64_t begin = std::min(segment.begin, part.size);
    return {.begin = part.begin + begin, .size = std::min(segment.size, part.size - begin)};
  }

  static at::Tensor Slice(const at::Tensor& tensor, const Range& range) {
    return tensor.narrow(0, range.begin, range.size);
  }

  const c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<gloo::transport::Device>> OpenGlooDevice(
    const std::string& address) {
  ASSIGN_OR_RETURN(const std::string numeric, LocalAddress(address));
  // Gloo writes to sockets whose other end may have just closed. That must become an error that
  // names the collective, not a silent end of this process.
  std::signal(SIGPIPE, SIG_IGN);
  try {
    return c10d::ProcessGroupGloo::createDeviceForHostname(numeric);
  } catch (const std::exception& error) {
    // Not Unavailable, which would mean that another rank is gone.
    return absl::FailedPreconditionError(
        absl::StrCat("cannot listen for ranks on ", numeric,
                     ", from which rank 0 (its --rendezvous) is reached: ", FirstLine(error)));
  }
}

absl::StatusOr<std::unique_ptr<Collectives>> ConnectGloo(
    Rendezvous& rendezvous, std::shared_ptr<gloo::transport::Device> device, const SubMesh& place,
    const CollectivesOptions& options, FlightRecorder& recorder) {
  auto gloo_options =
      c10d::ProcessGroupGloo::Options::create(absl::ToChronoMilliseconds(options.timeout));
  gloo_options->devices = {std::move(device)};
  // Send and recv need no thread, but Gloo requires at least one.
  gloo_options->threads = 1;
  try {
    const auto store = c10::make_intrusive<c10d::PrefixStore>(
        absl::StrCat("gloo/", place.axis, "/", place.ranks.front()), rendezvous.store());
    auto group = c10::make_intrusive<c10d::ProcessGroupGloo>(store, place.rank, place.world(),
                                                             std::move(gloo_options));
    return std::make_unique<GlooCollectives>(place, options, recorder, std::move(group));
  } catch (const std::exception& error) {
    return absl::UnavailableError(
        absl::StrFormat("cannot connect axis %s of %d ranks as rank %d (%d in the mesh) in %s: %s",
                        place.axis, place.world(), place.rank, place.ranks[place.rank],
                        absl::FormatDuration(options.timeout), FirstLine(error)));
  }
}

}  // namespace lathe::worker
