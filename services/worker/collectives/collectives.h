// What ranks of a sub-mesh do together.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "services/worker/aten.h"
#include "services/worker/collectives/flight_recorder.h"
#include "services/worker/collectives/mesh.h"
#include "services/worker/collectives/traffic.h"
#include "services/worker/collectives/wait_limit.h"

namespace lathe::worker {

enum class CollectiveKind {
  kAllReduceSum,
  kAllReduceMax,
  kAllGather,
  kReduceScatterSum,
  kBroadcast,
  kBarrier
};

// "all-reduce sum"
const char* NameOf(CollectiveKind kind);

// What one call is named in errors and dumps, and how long it may take.
struct CollectiveCall {
  template <typename Text>
  requires std::convertible_to<const Text&, std::string_view> CollectiveCall(
      const Text& call_name, std::optional<absl::Duration> call_timeout = std::nullopt)  // NOLINT
      : name(call_name), timeout(call_timeout) {}

  // Must outlive the collective.
  std::string_view name;
  // None: the communicator's own.
  std::optional<absl::Duration> timeout;
};

// A call as a backend sees it: its arguments are right, all tensors are flat.
struct CollectiveOperation {
  CollectiveKind kind;
  std::string_view name;
  int64_t number = 0;
  // Undefined for a barrier. The same tensor for what works in place.
  at::Tensor input;
  at::Tensor output;
  at::ScalarType dtype = at::ScalarType::Undefined;
  // Bytes of the larger of the two.
  int64_t payload_bytes = 0;
  int root = 0;
  absl::Duration timeout;
  absl::Time begun;  // SteadyNow()
  FlightRecorder::Id record = 0;

  absl::Time deadline() const { return begun + timeout; }
};

// Bytes that a rank receives in the ring algorithms of a world of n, with payload S: all-reduce
// 2 S (n-1)/n, all-gather and reduce-scatter S (n-1)/n, broadcast S but 0 for the root, barrier 0
// (the few bytes of a barrier are not counted). A division that does not come out is rounded up.
int64_t WireBytes(CollectiveKind kind, int world, int64_t payload_bytes, bool is_root);

struct CollectivesOptions {
  // Of a call that does not say. Ranks wait in it for slower ones too.
  absl::Duration timeout = absl::Seconds(10);
  // Called once, with the first failure, after the log has it with the recorder's dump; what ends
  // the process belongs here. With NCCL it may come from another thread.
  std::function<void(const absl::Status&)> on_failure = [](const absl::Status&) {};
  // What the communicators of a rank share; null: this one has its own.
  std::shared_ptr<WaitLimit> wait_limit = nullptr;
};

// A collective that was started and may not have ended: see Wait.
class PendingCollective {
 public:
  PendingCollective() = default;

 private:
  friend class Collectives;
  CollectiveOperation operation_;
  std::shared_ptr<void> work_;
};

// One communicator: the ranks of one sub-mesh. All of them make the same calls in the same order,
// each from one thread; traffic() may be called by any.
//
// On a CPU a call returns when it is done. On a GPU it returns when it is queued on the current
// stream, and what is queued behind it sees its result; a failure then shows later.
//
// Sums and maxima take float32, bfloat16, float64 and int64; all else takes any dtype. Tensors are
// contiguous; shapes do not matter, only numbers of elements. A wrong argument is InvalidArgument
// and nothing was sent: a bug of ours that the other ranks will see as a missing call.
//
// Any other error means that the ranks do not agree any more: DeadlineExceeded or Unavailable,
// naming the call, its number, axis, rank, world, bytes and how long it took. Every later call
// returns it again. The process has to end; the engine then forms the group anew.
class Collectives {
 public:
  virtual ~Collectives() = default;

  // Sub-mesh and place in it.
  const std::string& axis() const { return place_.axis; }
  int rank() const { return place_.rank; }
  int world() const { return place_.world(); }

  // In place; all ranks get the same bits.
  absl::Status AllReduceSum(const CollectiveCall& call, at::Tensor tensor);
  // In place. A NaN of one rank is everybody's on a CPU; NCCL does not promise that.
  absl::Status AllReduceMax(const CollectiveCall& call, at::Tensor tensor);
  // `whole` has `world` times the elements of `piece`: those of rank 0, rank 1, … `piece` may be
  // its own place in `whole`.
  absl::Status AllGather(const CollectiveCall& call, const at::Tensor& piece, at::Tensor whole);
  // `piece` becomes this rank's part of the sum of all ranks' `whole`, which stays as it is.
  // `piece` must not overlap with it.
  absl::Status ReduceScatterSum(const CollectiveCall& call, const at::Tensor& whole,
                                at::Tensor piece);
  // `tensor` becomes that of rank `root` of this sub-mesh.
  absl::Status Broadcast(const CollectiveCall& call, int root, at::Tensor tensor);
  // Returns when every rank has called it. On a GPU too.
  absl::Status Barrier(const CollectiveCall& call);

  // As AllGather, but only begins it: other work, other collectives of this communicator too, goes
  // on until Wait. Its deadline runs from here.
  absl::StatusOr<PendingCollective> StartAllGather(const CollectiveCall& call,
                                                   const at::Tensor& piece, at::Tensor whole);
  // Each started collective is waited for once, in the order in which they were started. On a GPU
  // the current stream waits, not the caller.
  absl::Status Wait(PendingCollective pending);

  // Counts for calls that begin from then on.
  WaitLimit& wait_limit() { return *wait_limit_; }

  // Of the calls that are done.
  TrafficByName traffic() const;
  CollectiveTotals totals() const;

 protected:
  // `recorder` must outlive it.
  Collectives(SubMesh place, CollectivesOptions options, FlightRecorder& recorder)
      : place_(std::move(place)),
        options_(std::move(options)),
        wait_limit_(options_.wait_limit ? options_.wait_limit : std::make_shared<WaitLimit>()),
        recorder_(recorder) {}

  // Runs one. An error's message says what happened; which collective it was is added to it.
  virtual absl::Status Run(const CollectiveOperation& operation) = 0;
  // An all-gather in two parts. The first may do all of it.
  virtual absl::StatusOr<std::shared_ptr<void>> Start(const CollectiveOperation& operation) = 0;
  virtual absl::Status Finish(const CollectiveOperation& operation, void* work) = 0;
  // Whether Run only queues: the backend then tells the recorder itself.
  virtual bool only_queues() const { return false; }

  const SubMesh& place() const { return place_; }
  const CollectivesOptions& options() const { return options_; }
  FlightRecorder& recorder() { return recorder_; }

  // Any thread. Makes `cause` the failure of this communicator unless it has one; returns the one
  // it has.
  absl::Status Fail(const CollectiveOperation& operation, const absl::Status& cause);
  absl::Status failure() const;

 private:
  absl::StatusOr<CollectiveOperation> Begin(CollectiveKind kind, const CollectiveCall& call,
                                            const at::Tensor& input, const at::Tensor& output,
                                            int root = 0);
  absl::Status RunOne(CollectiveKind kind, const CollectiveCall& call, const at::Tensor& input,
                      const at::Tensor& output, int root = 0);
  absl::Status End(const CollectiveOperation& operation, const absl::Status& status);
  void Count(const CollectiveOperation& operation);

  const SubMesh place_;
  const CollectivesOptions options_;
  const std::shared_ptr<WaitLimit> wait_limit_;
  FlightRecorder& recorder_;
  int64_t last_number_ = 0;

  mutable absl::Mutex mu_;
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
  TrafficByName traffic_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lathe::worker
