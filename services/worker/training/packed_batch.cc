#include "services/worker/training/packed_batch.h"

#include <utility>

namespace lathe::worker {
namespace {

template <typename T>
at::Tensor ToTensor(const std::vector<T>& values, at::Device device) {
  return at::tensor(at::ArrayRef<T>(values)).to(device);
}

bool SameProgram(const LossSpec& a, const LossSpec& b) {
  // Clip bounds are per entry.
  return a.kind == b.kind && a.beta == b.beta && a.kl_coeff == b.kl_coeff;
}

class Packer {
 public:
  void Add(const RowRef& row) {
    const int64_t begin = static_cast<int64_t>(tokens_.size());
    AddTokens(row.job->request.data[row.datum]);
    AddSegment(*row.job, begin);
    AddEntries(row, begin);
  }

  PackedBatch Finish(at::Device device) {
    batch_.rows.tokens = ToTensor(tokens_, device);
    batch_.rows.positions = ToTensor(positions_, device);
    batch_.row_entries.push_back(static_cast<int64_t>(entry_rows_.size()));
    batch_.entry_rows = ToTensor(entry_rows_, device);
    batch_.entry_targets = ToTensor(targets_, device);
    batch_.entry_wants_gradient = ToTensor(wants_gradient_, device);
    batch_.loss_inputs = {.weights = ToTensor(weights_, device),
                          .logprobs = ToTensor(logprobs_, device),
                          .advantages = ToTensor(advantages_, device),
                          .clip_low = ToTensor(clip_low_, device),
                          .clip_high = ToTensor(clip_high_, device),
                          .mask = ToTensor(mask_, device),
                          .sequence_log_ratio = {}};
    return std::move(batch_);
  }

 private:
  void AddTokens(const TrainDatum& datum) {
    if (batch_.rows.cu_seqlens.empty()) batch_.rows.cu_seqlens.push_back(0);
    for (size_t i = 0; i < datum.tokens.size(); ++i) {
      tokens_.push_back(datum.tokens[i]);
      positions_.push_back(static_cast<int64_t>(i));
    }
    batch_.rows.cu_seqlens.push_back(static_cast<int64_t>(tokens_.size()));
  }

  // Index of the gradients `job` adds to, made at first need. Rows come sorted, so only the last
  // one can be it.
  int64_t GradientIndex(TrainJob& job) {
    if (job.request.forward_only) return -1;
    TrainJob* const owner = job.spans_micro_batches ? &job : nullptr;
    auto& all = batch_.gradients;
    if (all.empty() || all.back().adapter != job.adapter || all.back().job != owner) {
      all.push_back({job.adapter, owner, job.adapter->MakeGradients()});
    }
    return static_cast<int64_t>(all.size()) - 1;
  }

  void AddSegment(TrainJob& job, int64_t begin) {
    const int64_t end = static_cast<int64_t>(tokens_.size());
    const int64_t gradient_index = GradientIndex(job);
    auto& segments = batch_.rows.segments;
    if (!segments.empty() && segments.back().adapter == job.weights.get() &&
        segments.back().gradient_index == gradient_index) {
      segments.back().end = end;
    } else {
      segments.push_back({begin, end, job.weights.get(), gradient_index});
    }
  }

  void AddEntries(const RowRef& row, int64_t first_row) {
    const TrainRequest& request = row.job->request;
    const TrainDatum& datum = request.data[row.datum];
    const int64_t begin = static_cast<int64_t>(entry_rows_.size());
    for (size_t i = 0; i < datum.tokens.size(); ++i) {
      batch_.row_entries.push_back(static_cast<int64_t>(entry_rows_.size()));
      for (int64_t k = 0; k < datum.num_targets; ++k) {
        AddEntry(request, datum, i, i * datum.num_targets + k);
        entry_rows_.push_back(first_row + static_cast<int64_t>(i));
      }
    }
    const int64_t end = static_cast<int64_t>(entry_rows_.size());
    batch_.datums.push_back({row, begin, end});
    auto& runs = batch_.loss_runs;
    if (!runs.empty() && SameProgram(runs.back().loss, request.loss)) {
      runs.back().entry_end = end;
    } else {
      runs.push_back({request.loss, begin, end});
    }
  }

  void AddEntry(const TrainRequest& request, const TrainDatum& datum, size_t i, size_t entry) {
    const bool is_weighted = request.loss.kind == LossKind::kCrossEntropy;
    targets_.push_back(datum.targets[entry]);
    wants_gradient_.push_back(request.forward_only ? 0.0f : 1.0f);
    weights_.push_back(is_weighted ? datum.weights[entry] : 0.0f);
    logprobs_.push_back(is_weighted ? 0.0f : datum.logprobs[i]);
    advantages_.push_back(is_weighted ? 0.0f : datum.advantages[i]);
    clip_low_.push_back(datum.clip_low.empty() ? static_cast<float>(request.loss.clip_low)
                                               : datum.clip_low[i]);
    clip_high_.push_back(datum.clip_high.empty() ? static_cast<float>(request.loss.clip_high)
                                                 : datum.clip_high[i]);
    mask_.push_back(datum.mask.empty() ? 0.0f : datum.mask[i]);
  }

  PackedBatch batch_;
  std::vector<int64_t> tokens_, positions_, entry_rows_, targets_;
  std::vector<float> wants_gradient_, weights_, logprobs_, advantages_, clip_low_, clip_high_,
      mask_;
};

}  // namespace

PackedBatch PackBatch(const MicroBatch& micro_batch, at::Device device) {
  Packer packer;
  for (const RowRef& row : micro_batch.rows) packer.Add(row);
  return packer.Finish(device);
}

}  // namespace lathe::worker
