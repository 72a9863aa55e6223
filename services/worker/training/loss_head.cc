#include "services/worker/training/loss_head.h"

#include <algorithm>
#include <utility>

#include "services/worker/layers/logprobs.h"
#include "services/worker/training/loss_datum.h"

namespace lathe::worker {
namespace {

const TrainDatum& DatumOf(const PackedDatum& datum) {
  return datum.row.job->request.data[datum.row.datum];
}

const LossSpec& LossOf(const PackedDatum& datum) { return datum.row.job->request.loss; }

bool IsCoupled(const PackedDatum& datum) { return LossOf(datum).program->couple != nullptr; }

// Returns true if the gradient of the datum's row `position` can be nonzero.
bool WantsGradient(const PackedDatum& packed, int64_t position) {
  if (packed.row.job->request.forward_only) return false;
  const LossDatum datum = LossDatumOf(DatumOf(packed));
  for (int64_t k = 0; k < datum.num_targets; ++k) {
    if (TakesPart(LossOf(packed), datum, position * datum.num_targets + k)) return true;
  }
  return false;
}

// Returns rows of x in the given order; a view if they are consecutive.
at::Tensor SelectRows(const at::Tensor& x, const std::vector<int64_t>& rows) {
  const auto size = static_cast<int64_t>(rows.size());
  if (rows.back() - rows.front() + 1 == size) return x.narrow(0, rows.front(), size);
  return x.index_select(0, at::tensor(rows, at::kLong).to(x.device()));
}

void WriteRows(at::Tensor x, const std::vector<int64_t>& rows, const at::Tensor& values) {
  const auto size = static_cast<int64_t>(rows.size());
  if (rows.back() - rows.front() + 1 == size) {
    x.narrow(0, rows.front(), size).copy_(values);
  } else {
    x.index_copy_(0, at::tensor(rows, at::kLong).to(x.device()), values);
  }
}

}  // namespace

LossHead::LossHead(const Model& model, const PackedBatch& batch, int64_t chunk_elements)
    : model_(model),
      batch_(batch),
      logprobs_(at::empty({batch.num_entries()}, at::kFloat)),
      losses_(at::empty({batch.num_entries()}, at::kFloat)) {
  PlanChunks(std::max<int64_t>(1, chunk_elements / model.part().local.vocab_size));
}

// Forward-only chunks come first. If the loss couples a datum's entries, their slopes need all
// log-probabilities of the datum. So its rows with gradient are in one chunk, or, if there are too
// many, they also run forward only beforehand.
void LossHead::PlanChunks(int64_t max_rows) {
  std::vector<int64_t> forward;
  std::vector<int64_t> backward;
  std::vector<Span> spans;
  int64_t first_row = 0;
  for (const PackedDatum& datum : batch_.datums) {
    const auto begin = static_cast<int64_t>(backward.size());
    const int64_t num_rows = datum.row.num_tokens();
    for (int64_t i = 0; i < num_rows; ++i) {
      (WantsGradient(datum, i) ? backward : forward).push_back(first_row + i);
    }
    first_row += num_rows;
    if (!IsCoupled(datum)) continue;
    const auto end = static_cast<int64_t>(backward.size());
    if (end - begin <= max_rows) {
      spans.push_back({begin, end});
    } else {
      forward.insert(forward.end(), backward.begin() + begin, backward.end());
    }
  }
  std::sort(forward.begin(), forward.end());
  AddChunks(forward, /*spans=*/{}, max_rows, /*wants_gradient=*/false);
  AddChunks(backward, spans, max_rows, /*wants_gradient=*/true);
}

void LossHead::AddChunks(const std::vector<int64_t>& rows, const std::vector<Span>& spans,
                         int64_t max_rows, bool wants_gradient) {
  const auto num_rows = static_cast<int64_t>(rows.size());
  if (num_rows == 0) return;
  const int64_t num_chunks = (num_rows + max_rows - 1) / max_rows;
  const int64_t chunk_rows = (num_rows + num_chunks - 1) / num_chunks;
  auto span = spans.begin();
  for (int64_t begin = 0; begin < num_rows;) {
    int64_t end = std::min(begin + chunk_rows, num_rows);
    while (span != spans.end() && span->second <= end) ++span;
    if (span != spans.end() && span->first < end) {
      end = span->second - begin <= max_rows ? span->second : span->first;
    }
    chunks_.push_back({{rows.begin() + begin, rows.begin() + end}, wants_gradient});
    begin = end;
  }
}

int64_t LossHead::num_half_chunks() const {
  int64_t num_halves = 0;
  for (const Chunk& chunk : chunks_) num_halves += chunk.wants_gradient ? 2 : 1;
  return num_halves;
}

bool LossHead::RunHalfChunk(const at::Tensor& x, at::Tensor dx,
                            std::vector<AdapterGradients*>& gradients) {
  const Chunk& chunk = chunks_[next_chunk_];
  if (pending_.has_value()) {
    Backward(chunk, *std::exchange(pending_, std::nullopt), dx, gradients);
  } else {
    if (next_chunk_ == 0 && dx.defined()) dx.zero_();
    Pending pending = Forward(chunk, x);
    if (chunk.wants_gradient) {
      pending_ = std::move(pending);
      return true;
    }
  }
  if (++next_chunk_ < chunks_.size()) return true;
  if (dx.defined()) FinishBackward(x, dx);
  EvaluateLosses();
  return false;
}

LossHead::Pending LossHead::Forward(const Chunk& chunk, const at::Tensor& x) {
  Pending pending;
  pending.segments = SegmentsOf(chunk);
  pending.targets = TargetsOf(chunk);
  pending.h = model_.FinalNorm(SelectRows(x, chunk.rows));
  pending.logits = model_.Logits(pending.h, pending.segments);
  ScoredTargets scored =
      ScoreTargets(pending.logits, pending.targets, model_.part().vocabulary.begin, model_.tp());
  pending.stats = std::move(scored.stats);
  KeepLogprobs(chunk, scored.logprobs);
  return pending;
}

void LossHead::Backward(const Chunk& chunk, Pending pending, at::Tensor dx,
                        std::vector<AdapterGradients*>& gradients) const {
  LogprobsBackward(pending.logits, pending.stats, pending.targets, Slopes(chunk),
                   model_.part().vocabulary.begin);
  WriteRows(dx, chunk.rows,
            model_.LogitsBackward(pending.h, pending.logits, pending.segments, gradients));
}

void LossHead::FinishBackward(const at::Tensor& x, at::Tensor dx) const {
  model_.tp().Sum("gradient of the head's input", dx);
  for (const Chunk& chunk : chunks_) {
    if (!chunk.wants_gradient) continue;
    WriteRows(dx, chunk.rows,
              model_.FinalNormBackward(SelectRows(x, chunk.rows), SelectRows(dx, chunk.rows)));
  }
}

std::vector<Segment> LossHead::SegmentsOf(const Chunk& chunk) const {
  const auto index_of = [&](int64_t row) {
    return std::lower_bound(chunk.rows.begin(), chunk.rows.end(), row) - chunk.rows.begin();
  };
  std::vector<Segment> segments;
  for (const Segment& segment : batch_.rows.segments) {
    Segment part = segment;
    part.begin = index_of(segment.begin);
    part.end = index_of(segment.end);
    if (part.begin < part.end) segments.push_back(part);
  }
  return segments;
}

RowTargets LossHead::TargetsOf(const Chunk& chunk) const {
  RowTargets targets;
  for (const int64_t row : chunk.rows) {
    for (int64_t entry = batch_.row_entries[row]; entry < batch_.row_entries[row + 1]; ++entry) {
      targets.tokens.push_back(batch_.entry_targets[entry]);
    }
    targets.offsets.push_back(static_cast<int64_t>(targets.tokens.size()));
  }
  return targets;
}

void LossHead::KeepLogprobs(const Chunk& chunk, const std::vector<float>& logprobs) {
  auto* const kept = logprobs_.mutable_data_ptr<float>();
  auto next = logprobs.begin();
  for (const int64_t row : chunk.rows) {
    const int64_t size = batch_.row_entries[row + 1] - batch_.row_entries[row];
    std::copy_n(next, size, kept + batch_.row_entries[row]);
    next += size;
  }
}

std::vector<float> LossHead::Slopes(const Chunk& chunk) const {
  std::vector<float> slopes;
  std::vector<float> losses, datum_slopes;
  auto row = chunk.rows.begin();
  for (const PackedDatum& datum : batch_.datums) {
    if (row == chunk.rows.end()) break;
    const int64_t begin = batch_.row_entries[*row];
    if (begin >= datum.entry_end) continue;
    // The range from the datum's first row in the chunk to its last one.
    const auto first = row;
    while (row != chunk.rows.end() && batch_.row_entries[*row] < datum.entry_end) ++row;
    const int64_t end = batch_.row_entries[*(row - 1) + 1];
    losses.resize(end - begin);
    datum_slopes.resize(end - begin);
    EvaluateLoss(LossOf(datum), {LossDatumOf(DatumOf(datum)), EntriesOf(logprobs_, datum)},
                 begin - datum.entry_begin, end - datum.entry_begin, losses.data(),
                 datum_slopes.data());
    for (auto one = first; one != row; ++one) {
      slopes.insert(slopes.end(), datum_slopes.begin() + (batch_.row_entries[*one] - begin),
                    datum_slopes.begin() + (batch_.row_entries[*one + 1] - begin));
    }
  }
  return slopes;
}

void LossHead::EvaluateLosses() {
  std::vector<float> slopes;
  for (const PackedDatum& datum : batch_.datums) {
    const int64_t size = datum.entry_end - datum.entry_begin;
    slopes.resize(size);
    EvaluateLoss(LossOf(datum), {LossDatumOf(DatumOf(datum)), EntriesOf(logprobs_, datum)}, 0, size,
                 losses_.mutable_data_ptr<float>() + datum.entry_begin, slopes.data());
  }
}

}  // namespace lathe::worker
