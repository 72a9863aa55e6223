// Compares the sampling of tokens on GPUs, on emulated threads, with the CPU's kernels.
#include "services/worker/kernels/cuda/sample_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "services/worker/kernels/cpu/sampling/sampling_kernel.h"
#include "services/worker/kernels/emulation/test_rows.h"

namespace lathe::worker {
namespace {

using emulation::Contents;
using emulation::DeviceBuffer;
using emulation::Floats;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr double kTolerance = 2e-6;  // of logprobs: rounding differs
constexpr int64_t kMostTop = 9;
constexpr int64_t kGap = 3;  // after each row of logits

struct Sample {
  int32_t token = 0;
  float logprob = 0;
  std::vector<int32_t> top_tokens;
  Floats top_logprobs;
};

using Rows = std::vector<Floats>;

std::vector<Sample> SampleOnDevice(const Rows& rows, const std::vector<RowInput>& inputs) {
  const auto num_rows = static_cast<int64_t>(rows.size());
  const auto vocab_size = static_cast<int64_t>(rows[0].size());
  Floats all;
  for (const Floats& row : rows) all.insert(all.end(), row.begin(), row.end());
  emulation::TestRows<float> logits("logits", {num_rows, vocab_size, kGap}, all);
  const DeviceBuffer<RowInput> device_inputs("inputs", inputs, Contents::kConstants);
  DeviceBuffer<int32_t> tokens("tokens", rows.size());
  DeviceBuffer<float> logprobs("logprobs", rows.size());
  DeviceBuffer<uint64_t> top_keys("top_keys", rows.size() * kMostTop);
  DeviceBuffer<int32_t> top_tokens("top_tokens", rows.size() * kMostTop);
  DeviceBuffer<float> top_logprobs("top_logprobs", rows.size() * kMostTop);
  SampleRowsOnDevice({.logits = logits.data(),
                      .row_stride = vocab_size + kGap,
                      .num_rows = num_rows,
                      .vocab_size = vocab_size,
                      .inputs = device_inputs.data(),
                      .tokens = tokens.data(),
                      .logprobs = logprobs.data(),
                      .most_top = kMostTop,
                      .top_keys = top_keys.data(),
                      .top_tokens = top_tokens.data(),
                      .top_logprobs = top_logprobs.data()},
                     nullptr);
  CHECK(tokens.num_unwritten_bytes() == 0);
  CHECK(logprobs.num_unwritten_bytes() == 0);
  std::vector<Sample> samples;
  for (size_t row = 0; row < rows.size(); ++row) {
    Sample sample = {.token = tokens[row], .logprob = logprobs[row]};
    const int64_t num_top = std::min<int64_t>(inputs[row].num_top, vocab_size);
    for (int64_t i = 0; i < num_top && !std::isnan(sample.logprob); ++i) {
      sample.top_tokens.push_back(top_tokens[row * kMostTop + i]);
      sample.top_logprobs.push_back(top_logprobs[row * kMostTop + i]);
    }
    samples.push_back(std::move(sample));
  }
  return samples;
}

// Returns the tokens that top-k, then top-p, then min-p keep, by sorting them all.
std::vector<int32_t> Kept(const Floats& weights, const RowInput& input) {
  std::vector<int32_t> order(weights.size());
  TopOf(weights, order);
  if (input.top_k > 0 && input.top_k < static_cast<int64_t>(order.size())) {
    order.resize(static_cast<size_t>(input.top_k));
  }
  if (input.top_p < 1) {
    double total = 0;
    for (const int32_t token : order) total += weights[token];
    double sum = 0;
    size_t count = 0;
    while (count < order.size() && (count == 0 || sum < input.top_p * total)) {
      sum += weights[order[count++]];
    }
    order.resize(count);
  }
  std::erase_if(order, [&](int32_t token) { return weights[token] < input.min_p; });
  std::ranges::sort(order);
  return order;
}

Sample SampleOnHost(const Floats& logits, const RowInput& input) {
  const float max = MaxOf(logits);
  Floats weights(logits.size());
  const double sum = Weigh(logits, max, input.inverse_temperature, weights.data());
  const auto logprob = [&](int32_t token) {
    return static_cast<float>(double{logits[token] - max} * input.inverse_temperature -
                              std::log(sum));
  };
  Sample sample;
  if (input.is_greedy != 0) {
    sample.token = static_cast<int32_t>(FirstOf(logits, max));
  } else {
    sample.token = GumbelMaxAmong(Kept(weights, input), weights.data(),
                                  {input.seed, input.sample_index, input.position});
  }
  sample.logprob = logprob(sample.token);
  sample.top_tokens.resize(std::min<size_t>(input.num_top, logits.size()));
  TopOf(logits, sample.top_tokens);
  for (const int32_t token : sample.top_tokens) sample.top_logprobs.push_back(logprob(token));
  return sample;
}

// Rows of different kinds: random logits, many equal ones, half of them -inf, all alike, one token
// with nearly all the weight, flat and steep rows.
Rows TestLogits(int64_t vocab_size) {
  Rows rows;
  for (uint64_t kind = 0; kind < 8; ++kind) {
    rows.push_back(emulation::Random(vocab_size, 100 + kind));
    for (float& logit : rows.back()) logit *= 6;
  }
  for (float& logit : rows[1]) logit = std::round(logit);
  for (float& logit : rows[2]) logit = std::round(logit * 0.3f);
  std::fill_n(rows[3].begin() + vocab_size / 3, vocab_size / 2, -kInfinity);
  std::ranges::fill(rows[4], 1.5f);
  rows[5].back() = 60;
  for (float& logit : rows[6]) logit *= 1e-3f;
  for (float& logit : rows[7]) logit *= 20;
  return rows;
}

std::vector<RowInput> TestInputs() {
  return {{.seed = 1, .is_greedy = 1},
          {.seed = 2},
          {.seed = 3, .inverse_temperature = 1 / 0.7f, .top_k = 7},
          {.seed = 4, .inverse_temperature = 1 / 0.7f, .top_k = 1},
          {.seed = 5, .top_p = 0.9},
          {.seed = 6, .inverse_temperature = 0.5f, .top_p = 0.5},
          {.seed = 7, .min_p = 0.05f},
          {.seed = 8, .top_k = 100000, .top_p = 1e-6, .min_p = 1},
          {.seed = 9, .inverse_temperature = 1 / 0.7f, .top_k = 40, .top_p = 0.9, .min_p = 0.02f}};
}

struct Case {
  Rows rows;
  std::vector<RowInput> inputs;
};

// Returns rows of each kind with one choice of parameters each, which `shift` moves.
Case TestCase(int64_t vocab_size, size_t shift) {
  Case test = {.rows = TestLogits(vocab_size), .inputs = {}};
  const std::vector<RowInput> inputs = TestInputs();
  for (size_t row = 0; row < test.rows.size(); ++row) {
    test.inputs.push_back(inputs[(row + shift) % inputs.size()]);
    RowInput& input = test.inputs.back();
    input.sample_index = static_cast<uint32_t>(row % 3);
    input.position = static_cast<uint32_t>(5 + row);
    if ((row + shift) % 4 == 0) input.num_top = static_cast<int32_t>(1 + (row + shift) % kMostTop);
  }
  return test;
}

void CheckSample(const Sample& device, const Sample& host) {
  CHECK(device.token == host.token);
  CHECK(device.logprob == Approx(host.logprob).margin(kTolerance));
  CHECK(device.top_tokens == host.top_tokens);
  for (size_t i = 0; i < host.top_logprobs.size(); ++i) {
    if (std::isinf(host.top_logprobs[i])) {
      CHECK(device.top_logprobs[i] == host.top_logprobs[i]);
    } else {
      CHECK(device.top_logprobs[i] == Approx(host.top_logprobs[i]).margin(kTolerance));
    }
  }
}

}  // namespace

TEST_CASE("GPU kernels, emulated: tokens are sampled as on a CPU", "[kernels]") {
  const auto [vocab_size, shift] = GENERATE(table<int64_t, size_t>({{3, 0}, {1024, 5}, {2500, 4}}));
  const auto [rows, inputs] = TestCase(vocab_size, shift);
  emulation::SetSeed(shift);
  const std::vector<Sample> samples = SampleOnDevice(rows, inputs);
  for (size_t row = 0; row < rows.size(); ++row) {
    CAPTURE(vocab_size, shift, row, inputs[row].top_k, inputs[row].top_p, inputs[row].min_p);
    CheckSample(samples[row], SampleOnHost(rows[row], inputs[row]));
  }
}

TEST_CASE("GPU kernels, emulated: a token of a large vocabulary is sampled as on a CPU",
          "[kernels]") {
  auto [rows, inputs] = TestCase(151936, 4);
  rows.resize(1);
  inputs.resize(1);
  CheckSample(SampleOnDevice(rows, inputs)[0], SampleOnHost(rows[0], inputs[0]));
}

TEST_CASE("GPU kernels, emulated: a row that is not finite has no logprob", "[kernels]") {
  const float bad = GENERATE(std::numeric_limits<float>::quiet_NaN(), kInfinity);
  Rows rows(3, Floats(200));
  rows[0][7] = bad;
  std::ranges::fill(rows[1], -kInfinity);
  const std::vector<RowInput> inputs(3, {.seed = 2, .top_k = 5, .num_top = 2});
  const std::vector<Sample> samples = SampleOnDevice(rows, inputs);
  CHECK(std::isnan(samples[0].logprob));
  CHECK(std::isnan(samples[1].logprob));
  CheckSample(samples[2], SampleOnHost(rows[2], inputs[2]));
}

}  // namespace lathe::worker
