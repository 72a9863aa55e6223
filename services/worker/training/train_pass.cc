#include "services/worker/training/train_pass.h"

#include <cmath>
#include <numeric>
#include <span>
#include <string>

#include <absl/strings/str_format.h>

#include "libs/common/fail_point/fail_point.h"
#include "services/worker/torch/torch_guard.h"
#include "services/worker/training/loss_datum.h"

namespace lathe::worker {
namespace {

// Returns an error with the reason why an entry's loss is not finite.
absl::Status LossNotFinite(const LossSpec& spec, const DatumLogprobs& in, int64_t entry, float loss,
                           const std::string& place) {
  if (std::isfinite(ReferenceLoss(spec, in, entry))) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "loss is %g at %s: the importance ratio or the weights are too large", loss, place));
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("loss is %g at %s: %s is %g where the logprob is %g", loss, place,
                      kReferenceLogprobs, in.datum.reference_logprobs[entry], in.logprobs[entry]));
}

// Returns OK, or an error that names the datum's first entry that is not finite.
absl::Status CheckFinite(const DatumResult& result) {
  const auto& [row, logprobs, losses] = result;
  const TrainRequest& request = row.job->request;
  const LossDatum datum = LossDatumOf(request.data[row.datum]);
  for (size_t i = 0; i < logprobs.size(); ++i) {
    if (std::isfinite(logprobs[i]) && std::isfinite(losses[i])) continue;
    const auto entry = static_cast<int64_t>(i);
    const std::string place =
        absl::StrFormat("position %d of datum %d", entry / datum.num_targets, row.datum);
    if (!std::isfinite(logprobs[i])) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "logprob is %g at %s: the model's weights have diverged", logprobs[i], place));
    }
    return LossNotFinite(request.loss, {datum, logprobs}, entry, losses[i], place);
  }
  return absl::OkStatus();
}

}  // namespace

TrainPass::TrainPass(const Model& model, const MicroBatch& micro_batch,
                     const std::vector<bool>& is_own, const TrainPassOptions& options)
    : model_(model),
      batch_(PackBatch(micro_batch, is_own, model.device())),
      head_(model, batch_, options.head_chunk_elements),
      layers_(model, batch_.rows, batch_.wants_gradient(), options.num_checkpointed) {
  for (PassGradients& gradients : batch_.gradients) gradients_.push_back(&gradients.gradients);
  if (batch_.num_tokens() == 0) phase_ = Phase::kDone;
}

bool TrainPass::RunUnit() {
  switch (phase_) {
    case Phase::kEmbed:
      if (const int code = FailPointErrno("worker.train.pass")) ThrowDeviceError(code);
      x_ = model_.Embed(batch_.rows);
      phase_ = Phase::kForward;
      break;
    case Phase::kForward:
      ForwardLayer();
      break;
    case Phase::kHead:
      RunHeadChunk();
      break;
    case Phase::kBackward:
      BackwardLayer();
      break;
    case Phase::kDone:
      break;
  }
  return phase_ != Phase::kDone;
}

void TrainPass::ForwardLayer() {
  if (!layers_.Forward(x_)) phase_ = Phase::kHead;
}

void TrainPass::RunHeadChunk() {
  if (batch_.wants_gradient() && !dx_.defined()) dx_ = at::empty_like(x_);
  if (head_.RunHalfChunk(x_, dx_, gradients_)) return;
  x_.reset();
  TakeHeadsResults();
  phase_ = failures_.empty() && batch_.wants_gradient() ? Phase::kBackward : Phase::kDone;
}

void TrainPass::TakeHeadsResults() {
  std::vector<DatumResult> results;
  for (const PackedDatum& datum : batch_.datums) {
    const std::span<const float> logprobs = EntriesOf(head_.logprobs(), datum);
    const std::span<const float> losses = EntriesOf(head_.losses(), datum);
    results.push_back(
        {datum.row, {logprobs.begin(), logprobs.end()}, {losses.begin(), losses.end()}});
  }
  SetResults(std::move(results));
}

void TrainPass::SetResults(std::vector<DatumResult> results) {
  results_ = std::move(results);
  failures_.clear();
  // Records jobs that are not finite, so that they never reach an accumulator.
  for (const DatumResult& result : results_) {
    absl::Status status = CheckFinite(result);
    if (!status.ok()) failures_.emplace_back(result.row.job, std::move(status));
  }
}

void TrainPass::BackwardLayer() {
  if (!layers_.Backward(dx_, gradients_)) phase_ = Phase::kDone;
}

void TrainPass::Commit() {
  for (DatumResult& result : results_) {
    TrainJob& job = *result.row.job;
    const size_t datum = result.row.datum;
    job.logprobs[datum] = std::move(result.logprobs);
    job.losses[datum] = std::accumulate(result.losses.begin(), result.losses.end(), 0.0);
    job.is_done[datum] = true;
    --job.num_pending_datums;
  }
  for (PassGradients& pass : batch_.gradients) {
    TrainJob& last = *pass.job;
    if (last.num_pending_datums > 0) {
      last.gradients = std::move(pass.gradients);
    } else {
      last.adapter->ReplaceGradient(pass.gradients);
    }
  }
}

}  // namespace lathe::worker
