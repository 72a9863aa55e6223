// Compiled with NCCL 2.32 and torch 2.11. Run with a single rank only (nccl_gpu_test.cc), not yet
// between GPUs.
//
// Communicators are non-blocking (ncclConfig_t::blocking = 0). An NCCL call may return
// ncclInProgress. Nothing else may be queued until ncclCommGetAsyncError reports another state. See
// NCCL's user guide, "Fault tolerance" and "Asynchronous errors and error handling".
#include "services/worker/collectives/transports/transports.h"

#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "libs/common/concurrency/named_thread.h"
#include "libs/common/status_macros.h"
#include "libs/common/time/clock.h"
#include "services/worker/collectives/flight_watch.h"
#include "services/worker/torch/device_loss.h"

namespace lathe::worker {
namespace {

// Timeout of finalizing a communicator.
constexpr absl::Duration kLeaveTimeout = absl::Seconds(5);

// The error of a collective. If this rank's own GPU is lost, its peers are not to blame.
absl::Status Failure(const std::string& message) {
  CheckForDeviceLoss(std::runtime_error(message));
  return absl::UnavailableError(message);
}

absl::Status CudaStatus(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return absl::OkStatus();
  return Failure(absl::StrCat(what, ": ", cudaGetErrorString(error)));
}

bool IsFine(ncclResult_t result) { return result == ncclSuccess || result == ncclInProgress; }

absl::Status NcclStatus(ncclResult_t result, ncclComm_t comm) {
  if (IsFine(result)) return absl::OkStatus();
  return Failure(absl::StrCat("NCCL: ", ncclGetErrorString(result), ": ", ncclGetLastError(comm)));
}

absl::Status DeadlineIsOver(absl::Duration timeout) {
  return absl::DeadlineExceededError(
      absl::StrFormat("deadline of %s is over", absl::FormatDuration(timeout)));
}

// A point in a stream, passed once it has been recorded and the stream has reached it.
class Event : public DeviceEvent {
 public:
  Event() { status_ = cudaEventCreateWithFlags(&event_, cudaEventDisableTiming); }
  ~Event() override { cudaEventDestroy(event_); }
  Event(const Event&) = delete;

  absl::Status Record(cudaStream_t stream) {
    if (status_ == cudaSuccess) status_ = cudaEventRecord(event_, stream);
    is_recorded_.store(true, std::memory_order_release);
    return CudaStatus(status_, "cudaEventRecord");
  }
  absl::Status MakeWait(cudaStream_t stream) const {
    return CudaStatus(cudaStreamWaitEvent(stream, event_, 0), "cudaStreamWaitEvent");
  }
  absl::StatusOr<bool> IsPassed() const override {
    // CUDA takes an event that was never recorded for one that has passed.
    if (!is_recorded_.load(std::memory_order_acquire)) return false;
    RETURN_IF_ERROR(CudaStatus(status_, "cudaEventRecord"));
    const cudaError_t state = cudaEventQuery(event_);
    if (state == cudaErrorNotReady) return false;
    RETURN_IF_ERROR(CudaStatus(state, "cudaEventQuery"));
    return true;
  }

 private:
  cudaEvent_t event_ = nullptr;
  cudaError_t status_ = cudaSuccess;  // not written once is_recorded_ is set
  std::atomic<bool> is_recorded_ = false;
};

struct Arguments {
  const void* input = nullptr;
  void* output = nullptr;
  size_t count = 0;
  ncclDataType_t dtype = ncclUint8;
};

ncclDataType_t DtypeOf(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return ncclFloat32;
    case at::kBFloat16:
      return ncclBfloat16;
    case at::kDouble:
      return ncclFloat64;
    case at::kLong:
      return ncclInt64;
    default:
      TORCH_CHECK(false, "NCCL cannot reduce ", dtype);
  }
}

// Collectives that only move data treat it as bytes.
Arguments ArgumentsOf(const CollectiveOperation& operation) {
  Arguments arguments{.input = operation.input.const_data_ptr(),
                      .output = operation.output.mutable_data_ptr(),
                      .count = operation.input.nbytes()};
  if (operation.kind == CollectiveKind::kAllReduceSum ||
      operation.kind == CollectiveKind::kAllReduceMax) {
    arguments.dtype = DtypeOf(operation.dtype);
    arguments.count = static_cast<size_t>(operation.input.numel());
  } else if (operation.kind == CollectiveKind::kReduceScatterSum) {
    arguments.dtype = DtypeOf(operation.dtype);
    arguments.count = static_cast<size_t>(operation.output.numel());
  }
  return arguments;
}

ncclResult_t Issue(const CollectiveOperation& operation, ncclComm_t comm, cudaStream_t stream) {
  const Arguments a = ArgumentsOf(operation);
  switch (operation.kind) {
    case CollectiveKind::kAllReduceSum:
    case CollectiveKind::kBarrier:
      return ncclAllReduce(a.input, a.output, a.count, a.dtype, ncclSum, comm, stream);
    case CollectiveKind::kAllReduceMax:
      return ncclAllReduce(a.input, a.output, a.count, a.dtype, ncclMax, comm, stream);
    case CollectiveKind::kAllGather:
      return ncclAllGather(a.input, a.output, a.count, a.dtype, comm, stream);
    case CollectiveKind::kReduceScatterSum:
      return ncclReduceScatter(a.input, a.output, a.count, a.dtype, ncclSum, comm, stream);
    case CollectiveKind::kBroadcast:
      return ncclBroadcast(a.input, a.output, a.count, a.dtype, operation.root, comm, stream);
    case CollectiveKind::kReplay:
      break;
  }
  return ncclInvalidArgument;
}

// Waits while NCCL is in progress. No other thread may use `comm` meanwhile.
absl::Status Settle(ncclComm_t comm, absl::Time deadline, absl::Duration timeout) {
  while (true) {
    ncclResult_t state = ncclSuccess;
    RETURN_IF_ERROR(NcclStatus(ncclCommGetAsyncError(comm, &state), comm));
    if (state != ncclInProgress) return NcclStatus(state, comm);
    if (SteadyNow() > deadline) return DeadlineIsOver(timeout);
    std::this_thread::yield();
  }
}

class NcclCollectives : public Collectives {
 public:
  // Takes ownership of `comm`.
  NcclCollectives(SubMesh place, const CollectivesOptions& options, FlightRecorder& recorder,
                  ncclComm_t comm, at::Device gpu)
      : Collectives(std::move(place), options, recorder),
        gpu_(gpu),
        ahead_(c10::cuda::getStreamFromPool(/*isHighPriority=*/true, gpu.index())),
        token_(at::zeros({1}, at::TensorOptions(at::kByte).device(gpu))),
        watch_(recorder),
        comm_(comm),
        watcher_("nccl-watch", [this] { Watch(); }) {}

  ~NcclCollectives() override {
    watch_.Stop();
    watcher_.Join();
    const c10::cuda::CUDAGuard guard(gpu_);
    absl::MutexLock lock(&mu_);
    if (comm_ != nullptr) LeaveLocked();
  }

 private:
  bool only_queues() const override { return true; }

  absl::Status Run(const CollectiveOperation& operation) override {
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(gpu_.index()).stream();
    if (operation.kind != CollectiveKind::kBarrier) return Queue(operation, stream).status();
    CollectiveOperation barrier = operation;
    barrier.input = barrier.output = token_;
    ASSIGN_OR_RETURN(const std::shared_ptr<Event> end, Queue(barrier, stream));
    while (true) {
      // The watching thread ends this wait when the deadline is over.
      RETURN_IF_ERROR(failure());
      ASSIGN_OR_RETURN(const bool is_passed, end->IsPassed());
      if (is_passed) return absl::OkStatus();
      absl::SleepFor(absl::Microseconds(20));
    }
  }

  // Runs on a separate stream, which first waits for the work queued on the current one.
  absl::StatusOr<std::shared_ptr<void>> Start(const CollectiveOperation& operation) override {
    Event ready;
    RETURN_IF_ERROR(ready.Record(c10::cuda::getCurrentCUDAStream(gpu_.index()).stream()));
    RETURN_IF_ERROR(ready.MakeWait(ahead_.stream()));
    // Keeps the allocator from reusing their memory before this stream is done with it.
    operation.input.record_stream(ahead_);
    operation.output.record_stream(ahead_);
    ASSIGN_OR_RETURN(std::shared_ptr<Event> end, Queue(operation, ahead_.stream()));
    return std::shared_ptr<void>(std::move(end));
  }

  absl::Status Finish(const CollectiveOperation&, void* work) override {
    return static_cast<Event*>(work)->MakeWait(
        c10::cuda::getCurrentCUDAStream(gpu_.index()).stream());
  }

  // The deadline is that of a single collective: a pass takes a small part of it.
  absl::Status RunReplay(const CollectiveOperation& operation,
                         const std::function<void()>& replay) override {
    const c10::cuda::CUDAGuard guard(gpu_);
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(gpu_.index()).stream();
    const auto begin = std::make_shared<Event>();
    const auto end = std::make_shared<Event>();
    RETURN_IF_ERROR(begin->Record(stream));
    // Watched from here on, so that a launch that blocks is noticed too. For the same reason no
    // lock is held meanwhile.
    watch_.Add(operation, begin, end);
    // Without an end, a replay that throws would count as one that hangs.
    const absl::Cleanup record_end = [&] { end->Record(stream).IgnoreError(); };
    replay();
    return absl::OkStatus();
  }

  // Returns the event at the end of the call. A call that is being recorded is not watched; its
  // replays are.
  absl::StatusOr<std::shared_ptr<Event>> Queue(const CollectiveOperation& operation,
                                               cudaStream_t stream) {
    const c10::cuda::CUDAGuard guard(gpu_);
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    RETURN_IF_ERROR(CudaStatus(cudaStreamIsCapturing(stream, &capture), "cudaStreamIsCapturing"));
    const auto begin = std::make_shared<Event>();
    auto end = std::make_shared<Event>();
    RETURN_IF_ERROR(begin->Record(stream));
    absl::MutexLock lock(&mu_);
    if (comm_ == nullptr) return failure();
    RETURN_IF_ERROR(NcclStatus(Issue(operation, comm_, stream), comm_));
    RETURN_IF_ERROR(Settle(comm_, operation.deadline(), operation.timeout));
    RETURN_IF_ERROR(end->Record(stream));
    if (capture == cudaStreamCaptureStatusNone) {
      watch_.Add(operation, begin, end);
    } else {
      recorder().Done(operation.record);
    }
    return end;
  }

  void Watch() {
    // In any other mode, a query would invalidate a graph capture on another thread.
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaThreadExchangeStreamCaptureMode(&mode);
    const c10::cuda::CUDAGuard guard(gpu_);
    watch_.Run([this] { return AsyncError(); },
               [this](const CollectiveOperation& operation, const absl::Status& status) {
                 // Records the reason first, so that threads released by the abort find it.
                 Fail(operation, status).IgnoreError();
                 Abort();
               });
  }

  // NCCL releases the GPU first. Then it waits until nobody has a recording of its calls any more.
  // So no lock is held: the executor, once released, must find its way out to drop its recordings.
  void Abort() {
    ncclComm_t comm = nullptr;
    {
      absl::MutexLock lock(&mu_);
      std::swap(comm, comm_);
    }
    ncclCommAbort(comm);
  }

  // NCCL need not notice that a peer has died: kernels that exchange over NVLink only wait for it.
  absl::Status AsyncError() {
    absl::MutexLock lock(&mu_);
    ncclResult_t state = ncclSuccess;
    RETURN_IF_ERROR(NcclStatus(ncclCommGetAsyncError(comm_, &state), comm_));
    return NcclStatus(state, comm_);
  }

  void LeaveLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const bool is_left = failure().ok() && IsFine(ncclCommFinalize(comm_)) &&
                         Settle(comm_, SteadyNow() + kLeaveTimeout, kLeaveTimeout).ok();
    if (is_left) {
      ncclCommDestroy(comm_);
    } else {
      ncclCommAbort(comm_);
    }
    comm_ = nullptr;
  }

  const at::Device gpu_;
  const c10::cuda::CUDAStream ahead_;
  const at::Tensor token_;

  FlightWatch watch_;
  absl::Mutex mu_;
  // Null after an abort.
  ncclComm_t comm_ ABSL_GUARDED_BY(mu_);
  NamedThread watcher_;
};

// Rank 0 of the sub-mesh creates the id and stores it; the others read it.
absl::StatusOr<ncclUniqueId> UniqueId(Rendezvous& rendezvous, const SubMesh& place) {
  const std::string key = absl::StrCat("nccl/", place.axis, "/", place.ranks.front());
  ncclUniqueId id;
  if (place.rank == 0) {
    RETURN_IF_ERROR(NcclStatus(ncclGetUniqueId(&id), nullptr));
    RETURN_IF_ERROR(rendezvous.Set(key, std::string_view(id.internal, sizeof(id.internal))));
    return id;
  }
  ASSIGN_OR_RETURN(const std::string bytes, rendezvous.Get(key));
  if (bytes.size() != sizeof(id.internal)) {
    return absl::InternalError(
        absl::StrFormat("NCCL's id has %d bytes, must have %d", bytes.size(), sizeof(id.internal)));
  }
  std::memcpy(id.internal, bytes.data(), bytes.size());
  return id;
}

absl::StatusOr<ncclComm_t> OpenComm(const ncclUniqueId& id, const SubMesh& place,
                                    absl::Duration timeout) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  absl::Status status =
      NcclStatus(ncclCommInitRankConfig(&comm, place.world(), id, place.rank, &config), comm);
  if (status.ok()) status = Settle(comm, SteadyNow() + timeout, timeout);
  if (status.ok()) return comm;
  if (comm != nullptr) ncclCommAbort(comm);
  return status;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Collectives>> ConnectNccl(Rendezvous& rendezvous, at::Device gpu,
                                                         const SubMesh& place,
                                                         const CollectivesOptions& options,
                                                         FlightRecorder& recorder) {
  const c10::cuda::CUDAGuard guard(gpu);
  ASSIGN_OR_RETURN(const ncclUniqueId id, UniqueId(rendezvous, place));
  const absl::StatusOr<ncclComm_t> comm = OpenComm(id, place, options.connect_timeout);
  if (comm.ok()) {
    return std::make_unique<NcclCollectives>(place, options, recorder, *comm, gpu);
  }
  return absl::Status(
      comm.status().code(),
      absl::StrFormat("cannot connect axis %s of %d ranks as rank %d (%d in the mesh): %s",
                      place.axis, place.world(), place.rank, place.ranks[place.rank],
                      comm.status().message()));
}

}  // namespace lathe::worker
