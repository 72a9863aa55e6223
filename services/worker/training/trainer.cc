#include "services/worker/training/trainer.h"

#include <exception>
#include <new>
#include <utility>

#include <absl/strings/str_cat.h>
#include <c10/util/Exception.h>

namespace lathe::worker {
namespace {

absl::Status StatusOf(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
      dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) {
    return absl::ResourceExhaustedError("out of memory in a training pass");
  }
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  return absl::InternalError(
      absl::StrCat("training pass failed: ",
                   torch_error != nullptr ? torch_error->what_without_backtrace() : error.what()));
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

}  // namespace

Trainer::Trainer(const Model& model, AdapterPool& adapters, const TrainerOptions& options)
    : model_(model), adapters_(adapters), options_(options) {}

Trainer::~Trainer() = default;

void Trainer::Begin(TrainBatch batch) { queued_.push_back(std::move(batch)); }

bool Trainer::HasWork() const { return !queued_.empty() || !micro_batches_.empty(); }

std::vector<FinishedRequest> Trainer::TakeFinished() { return std::exchange(finished_, {}); }

bool Trainer::RunUnit() {
  if (!HasWork()) return false;
  // Torch throws; whatever a step throws ends its pass and nothing else.
  try {
    Step();
  } catch (const std::exception& error) {
    FailPass(StatusOf(error));
  }
  return true;
}

void Trainer::Step() {
  if (pass_ != nullptr) {
    if (!pass_->RunUnit()) FinishPass();
  } else if (!micro_batches_.empty()) {
    pass_ =
        std::make_unique<TrainPass>(model_, micro_batches_.front(), options_.head_chunk_elements);
  } else {
    StartNextBatch();
  }
}

void Trainer::StartNextBatch() {
  TrainBatch batch = std::move(queued_.front());
  queued_.pop_front();
  jobs_.clear();
  for (TrainRequest& request : batch.requests) {
    auto job = std::make_unique<TrainJob>();
    job->request = std::move(request);
    job->logprobs.resize(job->request.data.size());
    job->losses.resize(job->request.data.size());
    job->num_pending_datums = static_cast<int64_t>(job->request.data.size());
    job->adapter = adapters_.Find(job->request.model_id);
    if (job->adapter == nullptr) {
      FailJob(*job, absl::FailedPreconditionError(
                        absl::StrCat("model ", job->request.model_id, " is not on this worker")));
    } else {
      job->weights = job->adapter->Publish();
      if (job->num_pending_datums == 0) CompleteJob(*job);
    }
    jobs_.push_back(std::move(job));
  }
  micro_batches_ = PlanMicroBatches(jobs_, options_.token_budget);
}

void Trainer::FinishPass() {
  if (!pass_->failures().empty()) {
    RetryWithoutFailedRequests();
    return;
  }
  pass_->Commit();
  ++counters_.passes;
  counters_.rows += pass_->num_datums();
  counters_.tokens += pass_->num_tokens();
  pass_.reset();
  const MicroBatch done = std::move(micro_batches_.front());
  micro_batches_.pop_front();
  CompleteFinishedJobs(done);
}

void Trainer::RetryWithoutFailedRequests() {
  for (const auto& [job, status] : pass_->failures()) {
    if (!job->is_finished) FailJob(*job, status);
  }
  pass_.reset();
  DropFinishedJobs(micro_batches_);
}

void Trainer::FailPass(const absl::Status& status) {
  pass_.reset();
  if (micro_batches_.empty()) return;
  for (const RowRef& row : micro_batches_.front().rows) {
    if (!row.job->is_finished) FailJob(*row.job, status);
  }
  DropFinishedJobs(micro_batches_);
}

void Trainer::FailJob(TrainJob& job, absl::Status status) {
  job.is_finished = true;
  job.gradients.reset();
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
  if (job.gradients.has_value()) job.adapter->AddGradients(*job.gradients);
  if (!job.request.forward_only) job.adapter->window.insert(job.request.seq_id);
  job.is_finished = true;
  job.gradients.reset();
  finished_.push_back({job.request.request_id, MakeOutput(job)});
}

}  // namespace lathe::worker
