#include "services/worker/training/packed_batch.h"

#include <algorithm>
#include <utility>

namespace lathe::worker {
namespace {

template <typename T>
at::Tensor ToTensor(const std::vector<T>& values, at::Device device) {
  return at::tensor(at::ArrayRef<T>(values)).to(device);
}

class BatchPacker {
 public:
  void Add(const RowRef& row) {
    const int64_t begin = static_cast<int64_t>(tokens_.size());
    AddTokens(row.job->request.data[row.datum]);
    AddSegment(*row.job, begin);
    AddEntries(row);
  }

  // Adds the gradients for a row of another rank: a job continues or ends on all ranks alike.
  void AddGradientsOnly(const RowRef& row) { GradientIndex(*row.job); }

  PackedBatch Finish(at::Device device) {
    batch_.rows.tokens = ToTensor(tokens_, device);
    batch_.rows.positions = ToTensor(positions_, device);
    batch_.row_entries.push_back(batch_.num_entries());
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

  // Returns the index of the gradients that `job` adds to, and creates them if needed. Rows are
  // sorted by adapter, so only the last gradients can match.
  int64_t GradientIndex(TrainJob& job) {
    if (!job.wants_gradient()) return -1;
    auto& all = batch_.gradients;
    if (all.empty() || all.back().job->adapter != job.adapter) {
      const at::Tensor& so_far =
          job.gradients.has_value() ? job.gradients->tensors.flat : job.adapter->gradient;
      all.push_back({&job, job.adapter->GradientsOver(so_far.clone())});
    }
    all.back().job = &job;
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

  void AddEntries(const RowRef& row) {
    const TrainDatum& datum = row.job->request.data[row.datum];
    const int64_t begin = batch_.num_entries();
    for (size_t i = 0; i < datum.tokens.size(); ++i) {
      batch_.row_entries.push_back(begin + static_cast<int64_t>(i) * datum.num_targets);
    }
    batch_.entry_targets.insert(batch_.entry_targets.end(), datum.targets.begin(),
                                datum.targets.end());
    batch_.datums.push_back({row, begin, batch_.num_entries()});
  }

  PackedBatch batch_;
  std::vector<int64_t> tokens_, positions_;
};

}  // namespace

std::span<const float> EntriesOf(const at::Tensor& values, const PackedDatum& datum) {
  return {values.const_data_ptr<float>() + datum.entry_begin,
          static_cast<size_t>(datum.entry_end - datum.entry_begin)};
}

bool PackedBatch::wants_gradient() const {
  return std::any_of(rows.segments.begin(), rows.segments.end(),
                     [](const Segment& segment) { return segment.gradient_index >= 0; });
}

PackedBatch PackBatch(const MicroBatch& micro_batch, const std::vector<bool>& is_own,
                      at::Device device) {
  BatchPacker packer;
  for (size_t i = 0; i < micro_batch.rows.size(); ++i) {
    if (is_own[i]) {
      packer.Add(micro_batch.rows[i]);
    } else {
      packer.AddGradientsOnly(micro_batch.rows[i]);
    }
  }
  return packer.Finish(device);
}

}  // namespace lathe::worker
