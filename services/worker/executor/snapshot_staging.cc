#include "services/worker/executor/snapshot_staging.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "services/worker/layers/cpu_rows.h"
#include "services/worker/layers/pauses.h"

namespace lathe::worker {
namespace {

// A hundredth of a second of copying. Less: more breaks for samples that decode, each of which
// costs a look at the queue.
constexpr int64_t kBiteNumbers = int64_t{8} << 20;
// Fewer are not worth another thread.
constexpr int64_t kGrainNumbers = int64_t{1} << 18;

// Returns the time it took, without pauses.
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
    if (HasPauses()) Pause();
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
  buffer = at::Tensor();  // before there is another, as both need not fit
  return at::empty({num_floats}, at::kFloat);
}

StagedModel SnapshotStaging::Stage(const std::string& model_id, const Adapter& adapter,
                                   const AdamParams& last_adam) {
  const int64_t size = adapter.num_parameters();
  StagedModel staged;
  staged.buffer = TakeBuffer(3 * size);
  int64_t used = 0;
  const auto copy = [&](const at::Tensor& from) {
    const at::Tensor to = staged.buffer.narrow(0, std::exchange(used, used + size), size);
    staged.staging_time += CopyInBites(from, to);
    return to;
  };
  staged.model = {.model_id = model_id,
                  .weights = adapter.Publish(),
                  .exp_avg = copy(adapter.exp_avg),
                  .exp_avg_sq = copy(adapter.exp_avg_sq),
                  .gradient = adapter.window.empty() ? at::Tensor() : copy(adapter.gradient),
                  .num_steps = adapter.num_steps,
                  .last_adam = last_adam,
                  .applied_seq = adapter.applied_seq,
                  .window = {adapter.window.begin(), adapter.window.end()}};
  ++num_taken_;
  return staged;
}

void SnapshotStaging::GiveBack(at::Tensor buffer, int64_t max_buffers) {
  --num_taken_;
  if (num_taken_ + static_cast<int64_t>(free_.size()) < max_buffers) {
    free_.push_back(std::move(buffer));
  }
}

}  // namespace lathe::worker
