#include "services/worker/executor/planning/step_rate.h"

#include <algorithm>
#include <bit>

#include "libs/common/time/clock.h"
#include "services/worker/models/packed_attention.h"

namespace lathe::worker {
namespace {

constexpr int64_t kMeasuredTokens = 256;
// A GPU computes 256 rows of a layer in less time than the host takes to launch the kernels.
constexpr int64_t kMeasuredTokensOnGpu = 2048;
constexpr int kMeasurements = 3;  // the first one also reads the weights from disk
// The backward step computes attention twice more, and LoRA's products.
constexpr double kBackwardCost = 1.5;
// Fewer rows cost nearly as much as 16. With more, the memory plan has no room for samples that
// decode.
constexpr int64_t kMinPrefillTokens = 16;
constexpr int64_t kMaxPrefillTokens = 1024;

int64_t PowerOfTwoBelow(double rows) {
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::clamp(rows, 1.0, 1e6))));
}

}  // namespace

absl::Duration MeasureLayerRow(const Model& model) {
  const int64_t most_tokens = model.device().is_cpu() ? kMeasuredTokens : kMeasuredTokensOnGpu;
  const int64_t num_tokens = std::min(most_tokens, model.spec().max_position_embeddings);
  const auto index = at::TensorOptions().dtype(at::kLong).device(model.device());
  const PackedRows rows{.tokens = at::zeros({num_tokens}, index),
                        .positions = at::arange(num_tokens, index),
                        .cu_seqlens = {0, num_tokens},
                        .segments = {{.begin = 0, .end = num_tokens}}};
  const at::Tensor x = model.Embed(rows);
  absl::Duration best = absl::InfiniteDuration();
  for (int i = 0; i < kMeasurements; ++i) {
    const absl::Time began = SteadyNow();
    PackedAttention attention(rows, model.attention_arithmetic());
    // Reading a number back waits for the device.
    model.LayerForward(0, x, rows, attention).view(-1)[0].item<float>();
    best = std::min(best, SteadyNow() - began);
  }
  return std::max(absl::Nanoseconds(1), best / num_tokens);
}

int64_t TokensPerStep(absl::Duration layer_row, absl::Duration duration) {
  return PowerOfTwoBelow(absl::FDivDuration(duration, layer_row) / kBackwardCost);
}

int64_t PrefillTokens(absl::Duration layer_row, int64_t num_layers, absl::Duration duration) {
  return std::clamp(PowerOfTwoBelow(absl::FDivDuration(duration, layer_row * num_layers)),
                    kMinPrefillTokens, kMaxPrefillTokens);
}

}  // namespace lathe::worker
