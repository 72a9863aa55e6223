#include "services/worker/training/loss_head.h"

#include <algorithm>

namespace lathe::worker {
namespace {

bool IsGspo(const LossRun& run) { return run.loss.kind == LossKind::kGspo; }

}  // namespace

LossHead::LossHead(const Model& model, const PackedBatch& batch, int64_t chunk_elements)
    : model_(model),
      batch_(batch),
      chunk_rows_(std::max<int64_t>(1, chunk_elements / model.spec().vocab_size)),
      is_first_sweep_(std::any_of(batch.loss_runs.begin(), batch.loss_runs.end(), IsGspo)) {
  const auto options = at::TensorOptions().dtype(at::kFloat).device(model.device());
  logprobs_ = at::empty({batch.num_entries()}, options);
  losses_ = at::empty({batch.num_entries()}, options);
}

bool LossHead::RunChunk(const at::Tensor& x, at::Tensor dx,
                        std::vector<AdapterGradients*>& gradients) {
  const int64_t begin = next_row_;
  const int64_t end = std::min(begin + chunk_rows_, batch_.num_tokens());
  next_row_ = end;
  const int64_t entry_begin = batch_.row_entries[begin];
  const int64_t entry_end = batch_.row_entries[end];
  const std::vector<Segment> segments = ChunkSegments(begin, end);

  const at::Tensor x_rows = x.narrow(0, begin, end - begin);
  const at::Tensor h = model_.FinalNorm(x_rows);
  at::Tensor log_probabilities = at::log_softmax(model_.Logits(h, segments), -1);  // [n, V]
  const at::Tensor rows =
      batch_.entry_rows.narrow(0, entry_begin, entry_end - entry_begin).sub(begin);
  const at::Tensor picked =
      at::add(batch_.entry_targets.narrow(0, entry_begin, entry_end - entry_begin), rows,
              model_.spec().vocab_size);  // index into the flattened chunk
  logprobs_.narrow(0, entry_begin, entry_end - entry_begin)
      .copy_(log_probabilities.view(-1).index_select(0, picked));
  if (is_first_sweep_) {
    if (end < batch_.num_tokens()) return true;
    ComputeSequenceRatios();
    is_first_sweep_ = false;
    next_row_ = 0;
    return true;
  }
  const at::Tensor dlogprobs = Evaluate(entry_begin, entry_end);
  if (!dx.defined()) return end < batch_.num_tokens();

  // dp/dlogit_v = [v is the target] - softmax_v, summed over the row's entries.
  const at::Tensor row_sums =
      at::zeros({end - begin}, dlogprobs.options()).index_add_(0, rows, dlogprobs);
  at::Tensor dlogits = log_probabilities.exp_().mul_(row_sums.neg_().unsqueeze(1));
  dlogits.view(-1).index_add_(0, picked, dlogprobs);
  const at::Tensor dh = model_.LogitsBackward(h, dlogits, segments, gradients);
  dx.narrow(0, begin, end - begin).copy_(model_.FinalNormBackward(x_rows, dh));
  return end < batch_.num_tokens();
}

at::Tensor LossHead::Evaluate(int64_t begin, int64_t end) {
  at::Tensor dlogprobs = at::empty({end - begin}, logprobs_.options());
  for (const LossRun& run : batch_.loss_runs) {
    const int64_t first = std::max(begin, run.entry_begin);
    const int64_t size = std::min(end, run.entry_end) - first;
    if (size <= 0) continue;
    LossInputs inputs = batch_.loss_inputs.Narrow(first, size);
    if (IsGspo(run)) inputs.sequence_log_ratio = sequence_log_ratio_.narrow(0, first, size);
    const LossResult result = EvaluateLoss(run.loss, logprobs_.narrow(0, first, size), inputs);
    losses_.narrow(0, first, size).copy_(result.loss);
    dlogprobs.narrow(0, first - begin, size).copy_(result.dlogprobs);
  }
  // Not a product: a forward_only entry's slope may be infinite.
  return dlogprobs.masked_fill_(batch_.entry_wants_gradient.narrow(0, begin, end - begin) == 0,
                                0.0);
}

void LossHead::ComputeSequenceRatios() {
  sequence_log_ratio_ = at::zeros_like(logprobs_);
  for (const PackedDatum& datum : batch_.datums) {
    if (datum.row.job->request.loss.kind != LossKind::kGspo) continue;
    const int64_t size = datum.entry_end - datum.entry_begin;
    const LossInputs inputs = batch_.loss_inputs.Narrow(datum.entry_begin, size);
    const at::Tensor log_ratio =
        at::sub(logprobs_.narrow(0, datum.entry_begin, size), inputs.logprobs)
            .masked_fill_(inputs.mask == 0, 0.0);
    // Without a masked token there is no ratio: 1.
    const at::Tensor mean = log_ratio.sum().div_(inputs.mask.sum().clamp_min_(1.0));
    sequence_log_ratio_.narrow(0, datum.entry_begin, size).copy_(mean);
  }
}

std::vector<Segment> LossHead::ChunkSegments(int64_t begin, int64_t end) const {
  std::vector<Segment> segments;
  for (const Segment& segment : batch_.rows.segments) {
    Segment part = segment;
    part.begin = std::max(segment.begin, begin) - begin;
    part.end = std::min(segment.end, end) - begin;
    if (part.begin < part.end) segments.push_back(part);
  }
  return segments;
}

}  // namespace lathe::worker
