// Collective operations among the ranks of a sub-mesh.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "services/worker/collectives/flight_recorder.h"
#include "services/worker/collectives/mesh.h"
#include "services/worker/collectives/traffic.h"
#include "services/worker/collectives/wait_limit.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

enum class CollectiveKind {
  kAllReduceSum,
  kAllReduceMax,
  kAllGather,
  kReduceScatterSum,
  kBroadcast,
  kBarrier,
  kReplay  // see Collectives::Replay
};

// Returns text such as "all-reduce sum".
const char* NameOf(CollectiveKind kind);

// Name of a call in errors and dumps, and its timeout.
struct CollectiveCall {
  template <typename Text>
  requires std::convertible_to<const Text&, std::string_view> CollectiveCall(
      const Text& call_name, std::optional<absl::Duration> call_timeout = std::nullopt)  // NOLINT
      : name(call_name), timeout(call_timeout) {}

  // Must remain live until the collective is done.
  std::string_view name;
  // Unset: the communicator's own timeout.
  std::optional<absl::Duration> timeout;
};

// A call as a backend gets it: the arguments are valid and all tensors are flat.
struct CollectiveOperation {
  CollectiveKind kind;
  std::string_view name;
  int64_t number = 0;
  // Undefined for a barrier and a replay. For an in-place collective, `output` is the same tensor.
  at::Tensor input;
  at::Tensor output;
  at::ScalarType dtype = at::ScalarType::Undefined;
  // Bytes of the larger of `input` and `output`.
  int64_t payload_bytes = 0;
  int root = 0;
  absl::Duration timeout;
  absl::Time begun;  // SteadyNow()
  FlightRecorder::Id record = 0;

  absl::Time deadline() const { return begun + timeout; }
};

// Bytes that a rank receives in the ring algorithms, with n ranks and payload S. Fractions are
// rounded up.
// All-reduce: 2 S (n-1)/n. All-gather and reduce-scatter: S (n-1)/n.
// Broadcast: S, but 0 for the root. Barrier: 0, as its few bytes are not counted.
int64_t WireBytes(CollectiveKind kind, int world, int64_t payload_bytes, bool is_root);

struct CollectivesOptions {
  // Timeout of a call that sets none. It includes the wait for slower ranks.
  absl::Duration timeout = absl::Seconds(10);
  // Time for NCCL to connect, which takes seconds for each of its algorithms.
  absl::Duration connect_timeout = absl::Seconds(60);
  // Called once, with the first failure, after that failure and the recorder's dump are logged.
  // Code that ends the process belongs here. With NCCL the call may come from another thread.
  std::function<void(const absl::Status&)> on_failure = [](const absl::Status&) {};
  // Wait limit that the communicators of a rank share. Null: this communicator has its own.
  std::shared_ptr<WaitLimit> wait_limit = nullptr;
};

// A collective that was started and may still be running. Pass it to Collectives::Wait.
class PendingCollective {
 public:
  PendingCollective() = default;

 private:
  friend class Collectives;
  CollectiveOperation operation_;
  std::shared_ptr<void> work_;
};

// A communicator: the ranks of one sub-mesh. All of them make the same calls in the same order,
// each from one thread. Any thread may call traffic().
//
// On a CPU a call returns when it is done. On a GPU it returns when it is queued on the current
// stream. Work queued behind it sees its result, and a failure shows later.
//
// Sums and maxima take float32, bfloat16, float64 and int64. All other collectives take any dtype.
// Tensors must be contiguous. Only numbers of elements count, not shapes. A wrong argument returns
// InvalidArgument and nothing is sent. That is a bug in our code, which the other ranks see as a
// missing call.
//
// Any other error means that the ranks have diverged. It is DeadlineExceeded or Unavailable and
// names the call, its number, axis, rank, world, bytes and elapsed time. Every later call returns
// the same error. The process has to end; the engine then forms the group anew.
class Collectives {
 public:
  virtual ~Collectives() = default;

  // Name of the sub-mesh, and this process's place in it.
  const std::string& axis() const { return place_.axis; }
  int rank() const { return place_.rank; }
  int world() const { return place_.world(); }

  // Works in place. All ranks get the same bits.
  absl::Status AllReduceSum(const CollectiveCall& call, at::Tensor tensor);
  // Works in place. On a CPU a NaN on one rank gives a NaN on all of them. NCCL does not promise
  // that.
  absl::Status AllReduceMax(const CollectiveCall& call, at::Tensor tensor);
  // `whole` has `world` times the elements of `piece`: those of rank 0, rank 1, … `piece` may alias
  // this rank's part of `whole`.
  absl::Status AllGather(const CollectiveCall& call, const at::Tensor& piece, at::Tensor whole);
  // `piece` becomes this rank's part of the sum of all ranks' `whole`. `whole` is not changed.
  // `piece` must not overlap with it.
  absl::Status ReduceScatterSum(const CollectiveCall& call, const at::Tensor& whole,
                                at::Tensor piece);
  // `tensor` becomes a copy of the tensor of rank `root` of this sub-mesh.
  absl::Status Broadcast(const CollectiveCall& call, int root, at::Tensor tensor);
  // Returns after every rank has called it, on a GPU too.
  absl::Status Barrier(const CollectiveCall& call);

  // Begins an AllGather. The caller may do other work until Wait, including other collectives of
  // this communicator. The deadline runs from this call.
  absl::StatusOr<PendingCollective> StartAllGather(const CollectiveCall& call,
                                                   const at::Tensor& piece, at::Tensor whole);
  // Every started collective must be waited for once, in the order of the starts. On a GPU the
  // current stream waits, not the caller.
  absl::Status Wait(PendingCollective pending);

  // Calls `replay`, which queues a recording (a CUDA graph) on the current stream and throws what
  // it will. All collectives of the recording have one deadline together, that of `call`, and one
  // number: the ranks replay the same recordings. `replay` itself makes no calls.
  absl::Status Replay(const CollectiveCall& call, const std::function<void()>& replay);

  // The limit applies to calls that begin after it is set.
  WaitLimit& wait_limit() { return *wait_limit_; }

  // Counters of the completed calls. A recorded collective counts when it is recorded; a replay is
  // a call without bytes.
  TrafficByName traffic() const;
  CollectiveTotals totals() const;

 protected:
  // `recorder` must outlive this object.
  Collectives(SubMesh place, CollectivesOptions options, FlightRecorder& recorder)
      : place_(std::move(place)),
        options_(std::move(options)),
        wait_limit_(options_.wait_limit ? options_.wait_limit : std::make_shared<WaitLimit>()),
        recorder_(recorder) {}

  // Runs one collective. An error's message says what happened; the caller adds which collective it
  // was.
  virtual absl::Status Run(const CollectiveOperation& operation) = 0;
  // An all-gather in two steps. Start may do all of it.
  virtual absl::StatusOr<std::shared_ptr<void>> Start(const CollectiveOperation& operation) = 0;
  virtual absl::Status Finish(const CollectiveOperation& operation, void* work) = 0;
  // Calls `replay`. A backend whose Run only queues watches what `replay` queues as it does a
  // collective. The others need not: their collectives are done, or have failed, on return.
  virtual absl::Status RunReplay(const CollectiveOperation& operation,
                                 const std::function<void()>& replay);
  // Returns true if Run only queues the collective. The backend then updates the recorder itself.
  virtual bool only_queues() const { return false; }

  const SubMesh& place() const { return place_; }
  const CollectivesOptions& options() const { return options_; }
  FlightRecorder& recorder() { return recorder_; }

  // Any thread. Records `cause` as the failure of this communicator unless it has failed before.
  // Returns the recorded failure.
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

// Computes a sum or maximum over ranks in rank order, whichever rank computes it:
// out[i] = ((parts[0][i] + parts[1][i]) + parts[2][i]) + …, or the maximum. Flat CPU tensors of one
// dtype and size; `out` may be one of `parts`. bfloat16 is summed in float32 and rounded once.
void ReduceInRankOrder(CollectiveKind kind, const std::vector<at::Tensor>& parts, at::Tensor& out);

}  // namespace lathe::worker
