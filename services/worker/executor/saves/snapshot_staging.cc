#include "services/worker/executor/saves/snapshot_staging.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "services/worker/layers/cpu_rows.h"
#include "services/worker/layers/yield_points.h"
#include "services/worker/lora/adapter_gather.h"

namespace lathe::worker {
namespace {

// Takes about 10 ms to copy. A smaller size means more yield points for samples that decode, each
// of which polls the queue.
constexpr int64_t kBiteNumbers = int64_t{8} << 20;
// Smaller parts are not worth another thread.
constexpr int64_t kGrainNumbers = int64_t{1} << 18;

// Copies with yield points. Returns the time without them.
absl::Duration CopyInBites(const at::Tensor& from, const at::Tensor& to) {
  auto began = std::chrono::steady_clock::now();
  const auto elapsed = [&] { return absl::FromChrono(std::chrono::steady_clock::now() - began); };
  if (!from.is_cpu()) {
    to.copy_(from);
    return elapsed();
  }
  absl::Duration spent;
  const auto* const x = from.const_data_ptr<float>();
  auto* const y = to.mutable_data_ptr<float>();
  for (int64_t bite = 0; bite < from.numel(); bite += kBiteNumbers) {
    const int64_t size = std::min(kBiteNumbers, from.numel() - bite);
    ForParts(size, kGrainNumbers, [&](int64_t begin, int64_t end) {
      std::copy(x + bite + begin, x + bite + end, y + bite + begin);
    });
    spent += elapsed();
    if (HasYieldPoints()) Yield();
    began = std::chrono::steady_clock::now();
  }
  return spent;
}

// Parts of a buffer, one after the other. Without a buffer they are undefined.
class BufferParts {
 public:
  explicit BufferParts(at::Tensor buffer) : buffer_(std::move(buffer)) {}

  at::Tensor Take(int64_t size) {
    if (!buffer_.defined()) return {};
    return buffer_.narrow(0, std::exchange(used_, used_ + size), size);
  }

  // Returns a copy of `from`, and adds the time without yields to `spent`.
  at::Tensor Copy(const at::Tensor& from, absl::Duration& spent) {
    const at::Tensor to = Take(from.numel());
    spent += CopyInBites(from, to);
    return to;
  }

 private:
  const at::Tensor buffer_;
  int64_t used_ = 0;
};

ModelSnapshot WithoutTensors(const std::string& model_id, const Adapter& adapter,
                             const AdamParams& last_adam) {
  return {.model_id = model_id,
          .num_steps = adapter.num_steps,
          .last_adam = last_adam,
          .applied_seq = adapter.applied_seq,
          .window = {adapter.window.begin(), adapter.window.end()}};
}

// Gathers weights, and moments if the model is to have them, in `parts` of rank 0 of tp.
void GatherState(const Adapter& adapter, const RankGroup& tp, bool has_moments, BufferParts& parts,
                 ModelSnapshot& model) {
  const ModelPart& part = adapter.model();
  const auto gather = [&](const at::Tensor& flat) {
    const at::Tensor to = parts.Take(adapter.sizes().whole);
    GatherWhole(flat, part, adapter.lora(), tp, to);
    return to;
  };
  const at::Tensor weights = gather(adapter.parameters());
  if (has_moments) {
    model.exp_avg = gather(adapter.exp_avg);
    model.exp_avg_sq = gather(adapter.exp_avg_sq);
  }
  if (!weights.defined()) return;
  model.weights = MakeAdapterWeights(weights, WholeModel(part.whole), adapter.lora());
}

}  // namespace

at::Tensor SnapshotStaging::TakeBuffer(int64_t num_floats) {
  at::Tensor buffer;
  if (!free_.empty()) {
    buffer = std::move(free_.back());
    free_.pop_back();
  }
  if (buffer.defined() && buffer.numel() >= num_floats) return buffer;
  Free(std::move(buffer));  // before allocating a new one, as both may not fit
  buffer = at::empty({num_floats}, at::kFloat);
  num_bytes_ += static_cast<int64_t>(buffer.nbytes());
  return buffer;
}

void SnapshotStaging::Free(at::Tensor buffer) {
  if (buffer.defined()) num_bytes_ -= static_cast<int64_t>(buffer.nbytes());
}

void SnapshotStaging::CopyTensors(const Adapter& adapter, StagedModel& staged) {
  staged.buffer = TakeBuffer(3 * adapter.num_parameters());
  BufferParts parts(staged.buffer);
  staged.model.weights = adapter.Publish();
  staged.model.exp_avg = parts.Copy(adapter.exp_avg, staged.staging_time);
  staged.model.exp_avg_sq = parts.Copy(adapter.exp_avg_sq, staged.staging_time);
  if (adapter.window.empty()) return;
  staged.model.gradient = parts.Copy(adapter.gradient, staged.staging_time);
}

// Except for the gradient, all data ranks have the same state, and the first one's is used.
void SnapshotStaging::GatherTensors(const Adapter& adapter, const RankGroups& ranks,
                                    StagedModel& staged) {
  const auto began = std::chrono::steady_clock::now();
  const int64_t shares = ranks.data.world() * adapter.sizes().shares;
  if (ranks.all.rank() == 0) staged.buffer = TakeBuffer(3 * adapter.sizes().whole + shares);
  BufferParts parts(staged.buffer);
  if (ranks.data.rank() == 0) {
    GatherState(adapter, ranks.tp, /*has_moments=*/true, parts, staged.model);
  }
  if (!adapter.window.empty()) {
    staged.model.gradient = parts.Take(shares);
    GatherShares(adapter.gradient, adapter.model(), adapter.lora(), ranks, staged.model.gradient);
  }
  staged.model.num_data_ranks = ranks.data.world();
  staged.staging_time = absl::FromChrono(std::chrono::steady_clock::now() - began);
}

StagedModel SnapshotStaging::Stage(const std::string& model_id, const Adapter& adapter,
                                   const AdamParams& last_adam, const RankGroups& ranks) {
  StagedModel staged;
  staged.model = WithoutTensors(model_id, adapter, last_adam);
  if (ranks.all.is_alone()) {
    CopyTensors(adapter, staged);
  } else {
    GatherTensors(adapter, ranks, staged);
  }
  ++num_taken_;
  return staged;
}

std::optional<ModelSnapshot> SnapshotStaging::StageSave(const std::string& model_id,
                                                        const Adapter& adapter,
                                                        const AdamParams& last_adam,
                                                        const RankGroups& ranks, bool has_moments) {
  if (ranks.data.rank() != 0) return std::nullopt;  // the first data rank has the same state
  ModelSnapshot model = WithoutTensors(model_id, adapter, last_adam);
  const auto allocate = [&](int64_t num_tensors) {
    return at::empty({num_tensors * adapter.sizes().whole}, at::kFloat);
  };
  if (!ranks.tp.is_alone()) {
    const bool is_first = ranks.tp.rank() == 0;
    BufferParts parts(is_first ? allocate(has_moments ? 3 : 1) : at::Tensor());
    GatherState(adapter, ranks.tp, has_moments, parts, model);
    if (!is_first) return std::nullopt;
    return model;
  }
  model.weights = adapter.Publish();
  if (!adapter.parameters().is_cpu()) {
    model.weights =
        MakeAdapterWeights(adapter.parameters().to(at::kCPU), adapter.model(), adapter.lora());
  }
  if (has_moments) {
    BufferParts parts(allocate(2));
    absl::Duration spent;  // not reported
    model.exp_avg = parts.Copy(adapter.exp_avg, spent);
    model.exp_avg_sq = parts.Copy(adapter.exp_avg_sq, spent);
  }
  return model;
}

void SnapshotStaging::GiveBack(at::Tensor buffer, int64_t max_buffers) {
  --num_taken_;
  if (buffer.defined() && num_taken_ + static_cast<int64_t>(free_.size()) < max_buffers) {
    free_.push_back(std::move(buffer));
  } else {
    Free(std::move(buffer));
  }
}

}  // namespace lathe::worker
