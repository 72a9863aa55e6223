#include "services/worker/lora/transposed_b.h"

#include <algorithm>
#include <vector>

#include "services/worker/kernels/cpu/lora_kernel.h"
#include "services/worker/layers/cpu_rows.h"

namespace lathe::worker {
namespace {

constexpr int64_t kTaskRows = 4096;

// Rows of B that one task transposes.
struct Task {
  const LoraPair* pair;
  int64_t begin;
  int64_t end;
};

}  // namespace

void AddTransposedB(AdapterWeights& weights) {
  std::vector<LoraPair*> pairs;
  for (LayerLora& layer : weights.tensors.layers) {
    for (LoraPair& pair : layer) pairs.push_back(&pair);
  }
  pairs.push_back(&weights.tensors.unembed);
  std::erase_if(pairs, [](const LoraPair* pair) { return !pair->defined(); });

  int64_t num_numbers = 0;
  for (const LoraPair* pair : pairs) num_numbers += pair->b.numel();
  if (!weights.flat_b_t.defined()) {
    weights.flat_b_t = at::empty({num_numbers}, weights.tensors.flat.options());
  }
  std::vector<Task> tasks;
  int64_t offset = 0;
  for (LoraPair* pair : pairs) {
    const int64_t out_features = pair->b.size(0);
    pair->b_t = weights.flat_b_t.narrow(0, offset, pair->b.numel()).view({-1, out_features});
    offset += pair->b.numel();
    for (int64_t row = 0; row < out_features; row += kTaskRows) {
      tasks.push_back({pair, row, std::min(row + kTaskRows, out_features)});
    }
  }
  ForTasks(static_cast<int64_t>(tasks.size()), num_numbers, [&](int64_t i) {
    const auto& [pair, begin, end] = tasks[i];
    const int64_t rank = pair->b.size(1);
    TransposeFloats(pair->b.const_data_ptr<float>() + begin * rank, rank, end - begin, rank,
                    pair->b_t.mutable_data_ptr<float>() + begin, pair->b.size(0));
  });
}

}  // namespace lathe::worker
