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
absl::Duration CopyInPieces(const at::Tensor& from, const at::Tensor& to) {
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
  const int64_t size = adapter.num_parameters();
  staged.buffer = TakeBuffer(3 * size);
  int64_t used = 0;
  const auto copy = [&](const at::Tensor& from) {
    const at::Tensor to = staged.buffer.narrow(0, std::exchange(used, used + size), size);
    staged.staging_time += CopyInPieces(from, to);
    return to;
  };
  staged.model.weights = adapter.Publish();
  staged.model.exp_avg = copy(adapter.exp_avg);
  staged.model.exp_avg_sq = copy(adapter.exp_avg_sq);
  if (!adapter.window.empty()) staged.model.gradient = copy(adapter.gradient);
}

// Except for the gradient, all data ranks have the same state, and the first one's is used.
void SnapshotStaging::GatherTensors(const Adapter& adapter, const RankGroups& ranks,
                                    StagedModel& staged) {
  const auto began = std::chrono::steady_clock::now();
  const ModelPart& part = adapter.model();
  const LoraSpec& lora = adapter.lora();
  const int64_t whole = adapter.sizes().whole;
  const int64_t shares = ranks.data.world() * adapter.sizes().shares;
  const bool is_first = ranks.all.rank() == 0;
  if (is_first) staged.buffer = TakeBuffer(3 * whole + shares);
  int64_t used = 0;
  const auto take = [&](int64_t size) {
    if (!is_first) return at::Tensor();
    return staged.buffer.narrow(0, std::exchange(used, used + size), size);
  };
  const auto gather = [&](const at::Tensor& flat) {
    const at::Tensor to = take(whole);
    GatherWhole(flat, part, lora, ranks.tp, to);
    return to;
  };
  if (ranks.data.rank() == 0) {
    const at::Tensor weights = gather(adapter.parameters());
    staged.model.exp_avg = gather(adapter.exp_avg);
    staged.model.exp_avg_sq = gather(adapter.exp_avg_sq);
    if (is_first) {
      staged.model.weights = MakeAdapterWeights(weights, WholeModel(part.whole), lora);
    }
  }
  if (!adapter.window.empty()) {
    staged.model.gradient = take(shares);
    GatherShares(adapter.gradient, part, lora, ranks, staged.model.gradient);
  }
  staged.model.num_data_ranks = ranks.data.world();
  staged.staging_time = absl::FromChrono(std::chrono::steady_clock::now() - began);
}

StagedModel SnapshotStaging::Stage(const std::string& model_id, const Adapter& adapter,
                                   const AdamParams& last_adam, const RankGroups& ranks) {
  StagedModel staged;
  staged.model = {.model_id = model_id,
                  .num_steps = adapter.num_steps,
                  .last_adam = last_adam,
                  .applied_seq = adapter.applied_seq,
                  .window = {adapter.window.begin(), adapter.window.end()}};
  if (ranks.all.is_alone()) {
    CopyTensors(adapter, staged);
  } else {
    GatherTensors(adapter, ranks, staged);
  }
  ++num_taken_;
  return staged;
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
