#include "services/worker/collectives/collectives.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libs/common/logging/logging.h"
#include "libs/common/status_macros.h"
#include "libs/common/time/clock.h"

namespace lathe::worker {
namespace {

bool Reduces(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduceSum || kind == CollectiveKind::kAllReduceMax ||
         kind == CollectiveKind::kReduceScatterSum;
}

bool CanBeReduced(at::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kDouble ||
         dtype == at::kLong;
}

const char* DtypeOf(const CollectiveOperation& operation) {
  const bool is_defined = operation.dtype != at::ScalarType::Undefined;
  return is_defined ? c10::toString(operation.dtype) : "nothing";
}

absl::Status CheckTensor(const char* role, const at::Tensor& tensor) {
  if (!tensor.defined()) return absl::InvalidArgumentError(absl::StrCat(role, " is undefined"));
  if (!tensor.is_contiguous()) {
    return absl::InvalidArgumentError(absl::StrCat(role, " is not contiguous"));
  }
  return absl::OkStatus();
}

absl::Status CheckSizes(CollectiveKind kind, const at::Tensor& input, const at::Tensor& output,
                        int world) {
  const int64_t wanted = kind == CollectiveKind::kAllGather          ? output.numel()
                         : kind == CollectiveKind::kReduceScatterSum ? input.numel()
                                                                     : -1;
  if (wanted < 0) return absl::OkStatus();
  const int64_t piece = kind == CollectiveKind::kAllGather ? input.numel() : output.numel();
  if (piece * world == wanted) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("the piece has %d elements and the whole %d, must be %d times as many", piece,
                      wanted, world));
}

absl::Status CheckArguments(CollectiveKind kind, const at::Tensor& input, const at::Tensor& output,
                            int root, int world) {
  if (root < 0 || root >= world) {
    return absl::InvalidArgumentError(
        absl::StrFormat("root is %d, must be in [0, %d)", root, world));
  }
  if (kind == CollectiveKind::kBarrier || kind == CollectiveKind::kReplay) {
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(CheckTensor("input", input));
  RETURN_IF_ERROR(CheckTensor("output", output));
  if (input.scalar_type() != output.scalar_type()) {
    return absl::InvalidArgumentError(absl::StrFormat("input is %s, output is %s",
                                                      c10::toString(input.scalar_type()),
                                                      c10::toString(output.scalar_type())));
  }
  if (Reduces(kind) && !CanBeReduced(input.scalar_type())) {
    return absl::InvalidArgumentError(
        absl::StrFormat("dtype is %s, must be Float, BFloat16, Double or Long",
                        c10::toString(input.scalar_type())));
  }
  return CheckSizes(kind, input, output, world);
}

}  // namespace

const char* NameOf(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduceSum:
      return "all-reduce sum";
    case CollectiveKind::kAllReduceMax:
      return "all-reduce max";
    case CollectiveKind::kAllGather:
      return "all-gather";
    case CollectiveKind::kReduceScatterSum:
      return "reduce-scatter sum";
    case CollectiveKind::kBroadcast:
      return "broadcast";
    case CollectiveKind::kBarrier:
      return "barrier";
    case CollectiveKind::kReplay:
      return "replay";
  }
  return "";
}

int64_t WireBytes(CollectiveKind kind, int world, int64_t payload_bytes, bool is_root) {
  const auto others_part = [&](int64_t bytes) { return (bytes * (world - 1) + world - 1) / world; };
  switch (kind) {
    case CollectiveKind::kAllReduceSum:
    case CollectiveKind::kAllReduceMax:
      return others_part(2 * payload_bytes);
    case CollectiveKind::kAllGather:
    case CollectiveKind::kReduceScatterSum:
      return others_part(payload_bytes);
    case CollectiveKind::kBroadcast:
      return is_root ? 0 : payload_bytes;
    case CollectiveKind::kBarrier:
    case CollectiveKind::kReplay:
      return 0;
  }
  return 0;
}

absl::Status Collectives::AllReduceSum(const CollectiveCall& call, at::Tensor tensor) {
  return RunOne(CollectiveKind::kAllReduceSum, call, tensor, tensor);
}

absl::Status Collectives::AllReduceMax(const CollectiveCall& call, at::Tensor tensor) {
  return RunOne(CollectiveKind::kAllReduceMax, call, tensor, tensor);
}

absl::Status Collectives::AllGather(const CollectiveCall& call, const at::Tensor& piece,
                                    at::Tensor whole) {
  return RunOne(CollectiveKind::kAllGather, call, piece, whole);
}

absl::Status Collectives::ReduceScatterSum(const CollectiveCall& call, const at::Tensor& whole,
                                           at::Tensor piece) {
  return RunOne(CollectiveKind::kReduceScatterSum, call, whole, piece);
}

absl::Status Collectives::Broadcast(const CollectiveCall& call, int root, at::Tensor tensor) {
  return RunOne(CollectiveKind::kBroadcast, call, tensor, tensor, root);
}

absl::Status Collectives::Barrier(const CollectiveCall& call) {
  return RunOne(CollectiveKind::kBarrier, call, at::Tensor(), at::Tensor());
}

absl::StatusOr<PendingCollective> Collectives::StartAllGather(const CollectiveCall& call,
                                                              const at::Tensor& piece,
                                                              at::Tensor whole) {
  PendingCollective pending;
  ASSIGN_OR_RETURN(pending.operation_, Begin(CollectiveKind::kAllGather, call, piece, whole));
  absl::StatusOr<std::shared_ptr<void>> work = Start(pending.operation_);
  if (!work.ok()) return End(pending.operation_, work.status());
  pending.work_ = *std::move(work);
  return pending;
}

absl::Status Collectives::Wait(PendingCollective pending) {
  RETURN_IF_ERROR(failure());
  return End(pending.operation_, Finish(pending.operation_, pending.work_.get()));
}

absl::Status Collectives::Replay(const CollectiveCall& call, const std::function<void()>& replay) {
  ASSIGN_OR_RETURN(const CollectiveOperation operation,
                   Begin(CollectiveKind::kReplay, call, at::Tensor(), at::Tensor()));
  return End(operation, RunReplay(operation, replay));
}

absl::Status Collectives::RunReplay(const CollectiveOperation&,
                                    const std::function<void()>& replay) {
  replay();
  return absl::OkStatus();
}

absl::Status Collectives::RunOne(CollectiveKind kind, const CollectiveCall& call,
                                 const at::Tensor& input, const at::Tensor& output, int root) {
  ASSIGN_OR_RETURN(const CollectiveOperation operation, Begin(kind, call, input, output, root));
  return End(operation, Run(operation));
}

absl::StatusOr<CollectiveOperation> Collectives::Begin(CollectiveKind kind,
                                                       const CollectiveCall& call,
                                                       const at::Tensor& input,
                                                       const at::Tensor& output, int root) {
  RETURN_IF_ERROR(failure());
  if (absl::Status status = CheckArguments(kind, input, output, root, world()); !status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("collective ", std::string(call.name), " (",
                                                   NameOf(kind), "): ", status.message()));
  }
  CollectiveOperation operation{.kind = kind,
                                .name = call.name,
                                .number = ++last_number_,
                                .root = root,
                                .timeout = wait_limit_->Of(call.timeout.value_or(options_.timeout)),
                                .begun = SteadyNow()};
  if (input.defined()) {
    operation.input = input.view(-1);
    operation.output = output.view(-1);
    operation.dtype = input.scalar_type();
    operation.payload_bytes = static_cast<int64_t>(std::max(input.nbytes(), output.nbytes()));
  }
  operation.record = recorder_.Queued(
      {.axis = axis(),
       .number = operation.number,
       .kind = NameOf(kind),
       .name = call.name,
       .dtype = DtypeOf(operation),
       .num_elements = input.defined() ? std::max(input.numel(), output.numel()) : 0});
  if (!only_queues()) recorder_.Started(operation.record);
  return operation;
}

absl::Status Collectives::End(const CollectiveOperation& operation, const absl::Status& status) {
  if (!status.ok()) return Fail(operation, status);
  if (!only_queues()) recorder_.Done(operation.record);
  Count(operation);
  return absl::OkStatus();
}

void Collectives::Count(const CollectiveOperation& operation) {
  const CollectiveTotals one = {
      .num_calls = 1,
      .payload_bytes = operation.payload_bytes,
      .wire_bytes =
          WireBytes(operation.kind, world(), operation.payload_bytes, operation.root == rank()),
      .waited = SteadyNow() - operation.begun};
  absl::MutexLock lock(&mu_);
  auto it = traffic_.find(operation.name);
  if (it == traffic_.end()) it = traffic_.emplace(operation.name, CollectiveTotals()).first;
  it->second += one;
}

absl::Status Collectives::Fail(const CollectiveOperation& operation, const absl::Status& cause) {
  const absl::Status failure(
      cause.code(),
      absl::StrFormat("collective %s (%s, number %d) on axis %s, rank %d of %d (%d in the mesh), "
                      "%d bytes of %s, failed after %.3f s: %s%s",
                      operation.name, NameOf(operation.kind), operation.number, axis(), rank(),
                      world(), place_.ranks[rank()], operation.payload_bytes, DtypeOf(operation),
                      absl::ToDoubleSeconds(SteadyNow() - operation.begun), cause.message(),
                      wait_limit_->Reason()));
  {
    absl::MutexLock lock(&mu_);
    if (!failure_.ok()) return failure_;
    failure_ = failure;
  }
  recorder_.Failed(operation.record);
  LogError("collective failed",
           {{"error", failure.message()}, {"last_collectives", recorder_.Dump()}});
  options_.on_failure(failure);
  return failure;
}

absl::Status Collectives::failure() const {
  absl::MutexLock lock(&mu_);
  return failure_;
}

TrafficByName Collectives::traffic() const {
  absl::MutexLock lock(&mu_);
  return traffic_;
}

CollectiveTotals Collectives::totals() const {
  CollectiveTotals totals;
  for (const auto& [name, of_name] : traffic()) totals += of_name;
  return totals;
}

}  // namespace lathe::worker
