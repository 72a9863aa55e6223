#include "services/worker/training/trainer.h"

#include <algorithm>
#include <exception>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <c10/core/CachingDeviceAllocator.h>

#include "libs/common/logging/logging.h"
#include "services/worker/memory/tensor_memory.h"
#include "services/worker/models/packed_attention.h"
#include "services/worker/torch/aten.h"
#include "services/worker/torch/torch_guard.h"

namespace lathe::worker {
namespace {

constexpr int kMaxRetries = 3;
// With fewer tokens matrix products are inefficient, so layers are recomputed instead.
constexpr int64_t kMinBudgetTokens = 512;
// Number of consecutive passes in which new requests may overtake a waiting one. With fewer, small
// requests wait longer; with more, large ones do.
constexpr int64_t kMaxPassesMissed = 3;
constexpr double kGib = 1 << 30;

// Returns fragments of the finished pass to the device, so that the next pass finds whole blocks.
void FreeCachedMemory(at::Device device) {
  if (device.is_cpu()) {
    FreeUnusedTensorMemory();
  } else {
    c10::getDeviceAllocator(device.type())->emptyCache();
  }
}

TrainOutput MakeOutput(TrainJob& job) {
  double loss = 0;
  for (const double datum_loss : job.losses) loss += datum_loss;
  size_t num_tokens = 0;
  for (const TrainDatum& datum : job.request.data) num_tokens += datum.tokens.size();
  return {.logprobs = std::move(job.logprobs),
          .metrics = {{"loss:sum", loss},
                      {"tokens:sum", static_cast<double>(num_tokens)},
                      {"datums:sum", static_cast<double>(job.request.data.size())}}};
}

// Frees a job's memory. The job itself stays until the next plan.
void Release(TrainJob& job) {
  job.is_finished = true;
  job.gradients.reset();
  job.weights.reset();  // the next step can reuse them
  job.request.data = {};
}

}  // namespace

PassCompute PassComputeOf(const Model& model) {
  const at::Device device = model.device();
  return {.cpu_threads = device.is_cpu() ? at::get_num_threads() : 0,
          .is_bf16 = PackedDtype(device, model.attention_arithmetic()) == at::kBFloat16};
}

Trainer::Trainer(const Model& model, AdapterPool& adapters, const TrainerOptions& options,
                 const RankGroup& data)
    : model_(model),
      adapters_(adapters),
      options_(options),
      data_(data),
      memory_(model.part().local, options.head_chunk_elements, PassComputeOf(model)),
      token_limit_(options.token_budget),
      byte_limit_(options.arena_bytes) {}

Trainer::~Trainer() = default;

void Trainer::Begin(TrainBatch batch) { queued_.push_back(std::move(batch)); }

bool Trainer::HasWork() const { return !queued_.empty() || !micro_batches_.empty(); }

std::vector<FinishedRequest> Trainer::TakeFinished() { return std::exchange(finished_, {}); }

bool Trainer::RunUnit() {
  if (!HasWork()) return false;
  // Torch throws. An exception ends its pass only.
  try {
    Step();
  } catch (const std::exception& error) {
    absl::Status status = StatusOfException("training pass", error);
    // The other ranks have thrown too, or wait for this rank.
    model_.tp().LimitWaits(std::string(status.message()));
    data_.LimitWaits(std::string(status.message()));
    const bool is_memory = absl::IsResourceExhausted(status) && !micro_batches_.empty();
    if (is_memory && RetryInHalves()) return true;
    FailPass(is_memory ? OutOfMemory() : std::move(status));
  }
  return true;
}

void Trainer::Step() {
  if (pass_ != nullptr) {
    if (!pass_->RunUnit()) FinishPass();
  } else if (!queued_.empty()) {
    StartNewRequests();
  } else {
    StartPass();
  }
}

void Trainer::StartNewRequests() {
  while (!queued_.empty()) {
    TrainBatch batch = std::move(queued_.front());
    queued_.pop_front();
    for (TrainRequest& request : batch.requests) StartJob(std::move(request));
  }
  Plan();
}

void Trainer::StartJob(TrainRequest request) {
  jobs_.push_back(std::make_unique<TrainJob>());
  TrainJob& job = *jobs_.back();
  job.request = std::move(request);
  job.waits_since_pass = counters_.train_passes;
  const absl::Status status = Guarded("start of a training request", [&]() -> absl::Status {
    const size_t num_datums = job.request.data.size();
    job.logprobs.resize(num_datums);
    job.losses.resize(num_datums);
    job.is_done.resize(num_datums);
    job.num_pending_datums = static_cast<int64_t>(num_datums);
    job.adapter = adapters_.Find(job.request.model_id);
    if (job.adapter == nullptr) {
      return absl::FailedPreconditionError(
          absl::StrCat("model ", job.request.model_id, " is not on this worker"));
    }
    job.weights = job.adapter->Publish();
    return CheckFits(job);
  });
  if (!status.ok()) {
    FailJob(job, status);
  } else if (job.num_pending_datums == 0) {
    CompleteJob(job);
  }
}

// Returns InvalidArgument if the largest datum fits into no pass, even with all layers
// checkpointed.
absl::Status Trainer::CheckFits(const TrainJob& job) const {
  for (size_t i = 0; i < job.request.data.size(); ++i) {
    const PassShape shape = ShapeAlone(job, i);
    const int64_t bytes = memory_.Bytes(shape, model_.spec().num_layers());
    if (bytes <= options_.arena_bytes) continue;
    return absl::InvalidArgumentError(absl::StrFormat(
        "datum %d has %d tokens and needs %.1f GiB of activations and gradients, %.1f GiB are "
        "available",
        i, shape.num_tokens, static_cast<double>(bytes) / kGib,
        static_cast<double>(options_.arena_bytes) / kGib));
  }
  return absl::OkStatus();
}

// Returns the longest-waiting job if the next pass must begin with it, otherwise nullptr. Repeated
// calls before the same pass return the same job.
const TrainJob* Trainer::LongestWaiting() {
  const TrainJob* longest = nullptr;
  for (const auto& job : jobs_) {
    if (longest == nullptr || job->waits_since_pass < longest->waits_since_pass) {
      longest = job.get();
    }
  }
  const auto is_long_ago = [this](int64_t pass) {
    return counters_.train_passes - pass >= kMaxPassesMissed;
  };
  if (longest == nullptr || !is_long_ago(longest->waits_since_pass)) return nullptr;
  const bool is_same_pass = aged_pass_ == counters_.train_passes;
  if (aged_pass_.has_value() && !is_same_pass && !is_long_ago(*aged_pass_ + 1)) return nullptr;
  aged_pass_ = counters_.train_passes;
  return longest;
}

void Trainer::Plan() {
  std::erase_if(jobs_, [](const auto& job) { return job->is_finished; });
  const int64_t smallest = std::min(token_limit_, kMinBudgetTokens);
  const int64_t num_checkpointed = memory_.FewestCheckpointed(
      {.num_tokens = smallest, .num_entries = smallest, .num_sequences = 1, .wants_gradient = true},
      byte_limit_);
  const TrainJob* const first = LongestWaiting();
  // A plan for all ranks' memory together may give one rank a share that does not fit. A plan for
  // fewer ranks packs less; a plan for one rank always fits, however rows are assigned.
  int num_ranks = data_.world();
  do {
    micro_batches_ = PlanMicroBatches(jobs_, memory_,
                                      {.numerics = options_.numerics,
                                       .num_ranks = num_ranks,
                                       .max_tokens = token_limit_,
                                       .max_bytes = byte_limit_,
                                       .num_checkpointed = num_checkpointed,
                                       .first = first});
    num_ranks /= 2;
  } while (num_ranks > 0 && !NextPassFits());
}

bool Trainer::NextPassFits() const {
  if (data_.is_alone() || micro_batches_.empty()) return true;
  const MicroBatch& batch = micro_batches_.front();
  const PassShape shape = LargestShare(batch, DealRows(batch, options_.numerics, data_.world()));
  return memory_.Bytes(shape, model_.spec().num_layers()) <= byte_limit_;
}

void Trainer::PlanFullSize() {
  token_limit_ = options_.token_budget;
  byte_limit_ = options_.arena_bytes;
  num_retries_ = 0;
  Plan();
}

void Trainer::StartPass() {
  if (!NextPassFits()) Plan();
  const MicroBatch& batch = micro_batches_.front();
  const std::vector<int> rank_of_row = DealRows(batch, options_.numerics, data_.world());
  const PassShape shape = LargestShare(batch, rank_of_row);
  const int64_t num_checkpointed = memory_.FewestCheckpointed(shape, byte_limit_);
  pass_bytes_ = memory_.Bytes(shape, num_checkpointed);
  counters_.arena_peak_bytes = std::max(counters_.arena_peak_bytes, pass_bytes_);
  pass_ = std::make_unique<RankPass>(
      model_, batch, rank_of_row,
      TrainPassOptions{.head_chunk_elements = options_.head_chunk_elements,
                       .num_checkpointed = num_checkpointed},
      data_);
}

void Trainer::EndPass() {
  pass_.reset();
  EndTensorMemoryPeriod();
  pass_bytes_ = 0;
}

void Trainer::FinishPass() {
  if (!pass_->failures().empty()) {
    RetryWithoutFailedRequests();
    return;
  }
  pass_->Commit();
  ++counters_.train_passes;
  EndPass();
  const MicroBatch done = std::move(micro_batches_.front());
  for (const RowRef& row : done.rows) {
    counters_.train_tokens += row.num_tokens();
    row.job->waits_since_pass = counters_.train_passes;
  }
  micro_batches_.pop_front();
  CompleteFinishedJobs(done);
  if (micro_batches_.empty()) PlanFullSize();
}

void Trainer::RetryWithoutFailedRequests() {
  for (const auto& [job, status] : pass_->failures()) {
    if (!job->is_finished) FailJob(*job, status);
  }
  EndPass();
  DropFinishedJobs(micro_batches_);
  if (micro_batches_.empty()) PlanFullSize();
}

bool Trainer::RetryInHalves() {
  if (num_retries_ == kMaxRetries) return false;
  const MicroBatch& batch = micro_batches_.front();
  const PassShape shape = LargestShare(batch, DealRows(batch, options_.numerics, data_.world()));
  LogWarn("training pass ran out of memory and is run again in halves",
          {{"tokens", shape.num_tokens},
           {"datums", batch.rows.size()},
           {"planned_bytes", pass_bytes_}});
  const int64_t fixed_bytes = memory_.Bytes({}, /*num_checkpointed=*/0);
  token_limit_ = std::max<int64_t>(1, std::min(token_limit_, shape.num_tokens) / 2);
  byte_limit_ = fixed_bytes + (std::min(byte_limit_, pass_bytes_) - fixed_bytes) / 2;
  EndPass();
  FreeCachedMemory(model_.device());
  ++num_retries_;
  ++counters_.out_of_memory_retries;
  Plan();
  return true;
}

absl::Status Trainer::OutOfMemory() const {
  int64_t num_tokens = 0;
  for (const RowRef& row : micro_batches_.front().rows) num_tokens += row.num_tokens();
  return absl::ResourceExhaustedError(absl::StrFormat(
      "out of memory in a training pass of %d tokens after %d retries: it was to take %.2f of "
      "%.2f GiB",
      num_tokens, num_retries_, static_cast<double>(pass_bytes_) / kGib,
      static_cast<double>(options_.arena_bytes) / kGib));
}

void Trainer::FailPass(absl::Status status) {
  EndPass();
  if (micro_batches_.empty()) {  // planning failed
    for (const auto& job : jobs_) {
      if (!job->is_finished) FailJob(*job, status);
    }
    return;
  }
  for (const RowRef& row : micro_batches_.front().rows) {
    if (!row.job->is_finished) FailJob(*row.job, status);
  }
  PlanFullSize();  // for the other requests
}

void Trainer::FailJob(TrainJob& job, absl::Status status) {
  Release(job);
  finished_.push_back({job.request.request_id, std::move(status)});
}

void Trainer::CompleteFinishedJobs(const MicroBatch& batch) {
  for (const RowRef& row : batch.rows) {
    if (row.job->num_pending_datums > 0 || row.job->is_finished) continue;
    CompleteJob(*row.job);
  }
}

void Trainer::CompleteJob(TrainJob& job) {
  if (adapters_.Find(job.request.model_id) != job.adapter) {
    FailJob(job, absl::FailedPreconditionError(absl::StrCat("model ", job.request.model_id,
                                                            " was unloaded during the request")));
    return;
  }
  if (!job.request.forward_only) job.adapter->window.insert(job.request.seq_id);
  finished_.push_back({job.request.request_id, MakeOutput(job)});
  Release(job);
}

}  // namespace lathe::worker
