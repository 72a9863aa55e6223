#include "services/worker/sampling/sampler/device_sampler.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "services/worker/layers/device_stream.h"
#include "services/worker/sampling/sampler/row_distribution.h"
#include "services/worker/sampling/sampler/top_filter.h"

namespace lathe::worker {
namespace {

int64_t MostTop(std::span<const SampleInput> inputs) {
  int64_t most = 0;
  for (const SampleInput& input : inputs)
    most = std::max(most, input.top != nullptr ? input.top->k : 0);
  return most;
}

at::Tensor Upload(std::span<const SampleInput> inputs, at::Device device) {
  const auto num_bytes = static_cast<int64_t>(inputs.size() * sizeof(RowInput));
  at::Tensor host = at::empty({num_bytes}, at::kByte);
  auto* next = host.mutable_data_ptr<uint8_t>();
  for (const SampleInput& input : inputs) {
    const RowInput row = RowInputOf(input);
    std::memcpy(next, &row, sizeof(row));
    next += sizeof(row);
  }
  return host.to(device);
}

// Appends one row to `top`, in the format of Draw::top.
void AppendTop(const int32_t* tokens, const float* logprobs, bool is_finite, int64_t vocab_size,
               TopkLogprobs& top) {
  const int64_t begin = top.length++ * top.k;
  top.token_ids.resize(begin + top.k, kNoTopToken);
  top.logprobs.resize(begin + top.k, kNoTopLogprob);
  if (!is_finite) return;
  const int64_t count = std::min(top.k, vocab_size);
  std::copy_n(tokens, count, top.token_ids.begin() + begin);
  std::copy_n(logprobs, count, top.logprobs.begin() + begin);
}

}  // namespace

RowInput RowInputOf(const SampleInput& input) {
  const SamplingParams& params = *input.params;
  return {.seed = params.seed,
          .sample_index = static_cast<uint32_t>(input.sample_index),
          .position = static_cast<uint32_t>(input.position),
          .inverse_temperature = InverseTemperature(params.temperature),
          .is_greedy = params.temperature == 0 ? 1 : 0,
          .top_k = std::max<int64_t>(0, params.top_k),
          .top_p = params.top_p,
          .min_p = static_cast<float>(params.min_p),
          .num_top = input.top != nullptr ? static_cast<int32_t>(input.top->k) : 0};
}

TokenSamples SampleTokensOnDevice(const at::Tensor& logits, std::span<const SampleInput> inputs) {
  const auto n = static_cast<int64_t>(inputs.size());
  const int64_t most_top = MostTop(inputs);
  const at::Tensor rows = logits.stride(1) == 1 ? logits : logits.contiguous();
  const at::Tensor uploaded = Upload(inputs, logits.device());
  const auto options = logits.options();
  const at::Tensor keys = at::empty({n * most_top}, options.dtype(at::kLong));
  // Holds tokens, logprobs, top tokens and top logprobs, 4 bytes each, for a single transfer.
  const at::Tensor results = at::empty({2 * n * (1 + most_top)}, options.dtype(at::kInt));
  auto* tokens = results.mutable_data_ptr<int32_t>();
  auto* logprobs = reinterpret_cast<float*>(tokens + n);
  SampleRowsOnDevice(
      {.logits = rows.const_data_ptr<float>(),
       .row_stride = rows.stride(0),
       .num_rows = n,
       .vocab_size = rows.size(1),
       .inputs = reinterpret_cast<const RowInput*>(uploaded.const_data_ptr<uint8_t>()),
       .tokens = tokens,
       .logprobs = logprobs,
       .most_top = most_top,
       .top_keys = reinterpret_cast<uint64_t*>(keys.mutable_data_ptr<int64_t>()),
       .top_tokens = tokens + 2 * n,
       .top_logprobs = logprobs + n + n * most_top},
      CurrentStream(logits.device()));

  const at::Tensor host = results.to(at::kCPU);
  const auto* host_tokens = host.const_data_ptr<int32_t>();
  const auto* host_logprobs = reinterpret_cast<const float*>(host_tokens + n);
  const auto* top_tokens = host_tokens + 2 * n;
  const auto* top_logprobs = host_logprobs + n + n * most_top;
  TokenSamples sampled{.tokens = {host_tokens, host_tokens + n},
                       .logprobs = {host_logprobs, host_logprobs + n}};
  for (int64_t i = 0; i < n; ++i) {
    if (inputs[i].top == nullptr) continue;
    AppendTop(top_tokens + i * most_top, top_logprobs + i * most_top,
              !std::isnan(sampled.logprobs[i]), rows.size(1), *inputs[i].top);
  }
  return sampled;
}

}  // namespace lathe::worker
