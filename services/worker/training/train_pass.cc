#include "services/worker/training/train_pass.h"

#include <cmath>
#include <span>
#include <string>

#include <absl/strings/str_format.h>

#include "libs/common/fail_point/fail_point.h"
#include "services/worker/models/packed_attention.h"
#include "services/worker/training/loss_datum.h"

namespace lathe::worker {
namespace {

// What made the loss of an entry too large.
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

// OK, or which entry of the datum is not finite.
absl::Status CheckFinite(const PackedDatum& packed, std::span<const float> logprobs,
                         std::span<const float> losses) {
  const TrainRequest& request = packed.row.job->request;
  const LossDatum datum = LossDatumOf(request.data[packed.row.datum]);
  for (size_t i = 0; i < logprobs.size(); ++i) {
    if (std::isfinite(logprobs[i]) && std::isfinite(losses[i])) continue;
    const auto entry = static_cast<int64_t>(i);
    const std::string place =
        absl::StrFormat("position %d of datum %d", entry / datum.num_targets, packed.row.datum);
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
                     const TrainPassOptions& options)
    : model_(model),
      num_checkpointed_(options.num_checkpointed),
      batch_(PackBatch(micro_batch, model.device())),
      head_(model, batch_, options.head_chunk_elements),
      checkpoints_(model.spec().num_layers),
      saved_(model.spec().num_layers) {
  for (PassGradients& gradients : batch_.gradients) gradients_.push_back(&gradients.gradients);
}

bool TrainPass::RunUnit() {
  switch (phase_) {
    case Phase::kEmbed:
      FailPoint("worker.train.pass");
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
  const bool is_checkpointed = layer_ < num_checkpointed_;
  if (batch_.wants_gradient() && !is_checkpointed) {
    x_ = model_.LayerForwardSaving(layer_, x_, batch_.rows, &saved_[layer_]);
  } else {
    if (batch_.wants_gradient()) checkpoints_[layer_] = x_;
    PackedAttention attention(batch_.rows.cu_seqlens, model_.attention_arithmetic());
    x_ = model_.LayerForward(layer_, x_, batch_.rows, attention);
  }
  if (++layer_ == model_.spec().num_layers) phase_ = Phase::kHead;
}

void TrainPass::RunHeadChunk() {
  if (batch_.wants_gradient() && !dx_.defined()) dx_ = at::empty_like(x_);
  if (head_.RunHalfChunk(x_, dx_, gradients_)) return;
  x_.reset();
  CheckResults();
  phase_ = failures_.empty() && batch_.wants_gradient() ? Phase::kBackward : Phase::kDone;
}

void TrainPass::CheckResults() {
  // A job that is not finite must not reach an accumulator.
  for (const PackedDatum& datum : batch_.datums) {
    absl::Status status =
        CheckFinite(datum, EntriesOf(head_.logprobs(), datum), EntriesOf(head_.losses(), datum));
    if (!status.ok()) failures_.emplace_back(datum.row.job, std::move(status));
  }
}

void TrainPass::BackwardLayer() {
  const int64_t layer = layer_ - 1;
  if (checkpoints_[layer].defined()) {
    // A step of its own: it takes as long as a forward step.
    saved_[layer] = model_.LayerRecompute(layer, checkpoints_[layer], batch_.rows);
    checkpoints_[layer].reset();
    return;
  }
  dx_ = model_.LayerBackward(layer, dx_, batch_.rows, std::move(saved_[layer]), gradients_);
  layer_ = layer;
  if (layer_ == 0) phase_ = Phase::kDone;
}

void TrainPass::Commit() {
  for (const PackedDatum& datum : batch_.datums) {
    TrainJob& job = *datum.row.job;
    const std::span<const float> logprobs = EntriesOf(head_.logprobs(), datum);
    job.logprobs[datum.row.datum].assign(logprobs.begin(), logprobs.end());
    double loss = 0;
    for (const float value : EntriesOf(head_.losses(), datum)) loss += value;
    job.losses[datum.row.datum] = loss;
    job.is_done[datum.row.datum] = true;
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
