// Compares the GPU sampler with the CPU sampler. Runs the GPU sampler's code on CPU threads, and on
// a GPU if there is one.
#include "services/worker/sampling/sampler/device_sampler.h"

#include <atomic>
#include <barrier>
#include <cmath>
#include <limits>
#include <numeric>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "services/worker/kernels/cuda/sample_row.h"

namespace lathe::worker {
namespace {

constexpr int kThreads = 2 * sampling::kLanes;
constexpr double kDeviceTolerance = 2e-6;  // of logprobs: rounding differs

struct TeamMemory {
  explicit TeamMemory(int64_t vocab_size)
      : stretch_sums(
            static_cast<size_t>((vocab_size + sampling::kStretch - 1) / sampling::kStretch)) {}

  std::barrier<> barrier{kThreads};
  std::vector<float> stretch_sums;
  float floats[kThreads] = {};
  uint64_t words[kThreads][sampling::kMostSums] = {};
  std::atomic<int> num_claims = 0;
};

// Implements the Team of sample_row.h with threads of this process.
class ThreadTeam {
 public:
  ThreadTeam(TeamMemory& memory, int rank) : memory_(memory), rank_(rank) {}

  int rank() const { return rank_; }
  int size() const { return kThreads; }
  float* stretch_sums() { return memory_.stretch_sums.data(); }
  void Sync() { memory_.barrier.arrive_and_wait(); }
  float SumLanes(float x) {
    for (int half = sampling::kLanes / 2; half > 0; half /= 2) {
      memory_.floats[rank_] = x;
      Sync();
      const int other = rank_ + half;
      if (rank_ % sampling::kLanes < half) x += memory_.floats[other];
      Sync();
    }
    return x;
  }
  float Max(float x) {
    memory_.floats[rank_] = x;
    Sync();
    for (const float other : memory_.floats) x = std::max(x, other);
    Sync();
    return x;
  }
  uint64_t Min(uint64_t x) {
    memory_.words[rank_][0] = x;
    Sync();
    for (const auto& other : memory_.words) x = std::min(x, other[0]);
    Sync();
    return x;
  }
  template <int kCount>
  void Sum(uint64_t (&x)[kCount]) {
    std::copy(x, x + kCount, memory_.words[rank_]);
    Sync();
    for (int j = 0; j < kCount; ++j) {
      x[j] = 0;
      for (const auto& other : memory_.words) x[j] += other[j];
    }
    Sync();
  }
  void ResetClaims() {
    if (rank_ == 0) memory_.num_claims = 0;
    Sync();
  }
  int Claim() { return memory_.num_claims++; }

 private:
  TeamMemory& memory_;
  const int rank_;
};

// Output of SampleRow, as the device kernel writes it.
struct DeviceRows {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  std::vector<int32_t> top_tokens;
  std::vector<float> top_logprobs;
};

DeviceRows SampleByThreads(const at::Tensor& logits, const std::vector<RowInput>& inputs,
                           int64_t most_top) {
  const size_t n = inputs.size();
  DeviceRows rows{.tokens = std::vector<int32_t>(n, -1),
                  .logprobs = std::vector<float>(n),
                  .top_tokens = std::vector<int32_t>(n * most_top, -1),
                  .top_logprobs = std::vector<float>(n * most_top)};
  std::vector<uint64_t> keys(n * most_top);
  const SampleRowsTask task = {.logits = logits.const_data_ptr<float>(),
                               .row_stride = logits.stride(0),
                               .num_rows = static_cast<int64_t>(n),
                               .vocab_size = logits.size(1),
                               .inputs = inputs.data(),
                               .tokens = rows.tokens.data(),
                               .logprobs = rows.logprobs.data(),
                               .most_top = most_top,
                               .top_keys = keys.data(),
                               .top_tokens = rows.top_tokens.data(),
                               .top_logprobs = rows.top_logprobs.data()};
  TeamMemory memory(logits.size(1));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < kThreads; ++rank) {
    threads.emplace_back([&, rank] {
      ThreadTeam team(memory, rank);
      for (int64_t row = 0; row < task.num_rows; ++row) {
        sampling::SampleRow(team, task, row);
        team.Sync();
      }
    });
  }
  threads.clear();
  return rows;
}

// Returns 8 rows of different kinds: for example random logits, many equal logits, half of them
// -inf, or one token with nearly all the weight.
at::Tensor TestLogits(int64_t vocab_size) {
  at::manual_seed(11);
  at::Tensor logits = at::randn({8, vocab_size}) * 3;
  logits[1].copy_(logits[1].round());
  logits[2].copy_((logits[2] * 0.3).round());
  logits[3]
      .narrow(0, vocab_size / 3, vocab_size / 2)
      .fill_(-std::numeric_limits<float>::infinity());
  logits[4].fill_(1.5);
  logits[5][vocab_size - 1] = 60;
  logits[6].mul_(1e-3);
  logits[7].mul_(20);
  return logits;
}

std::vector<SamplingParams> TestParams() {
  return {{.temperature = 0, .seed = 1},
          {.temperature = 1, .seed = 2},
          {.temperature = 0.7, .top_k = 7, .seed = 3},
          {.temperature = 0.7, .top_k = 1, .seed = 4},
          {.temperature = 1, .top_p = 0.9, .seed = 5},
          {.temperature = 2, .top_p = 0.5, .seed = 6},
          {.temperature = 1, .min_p = 0.05, .seed = 7},
          {.temperature = 1, .top_k = 100000, .top_p = 1e-6, .min_p = 1, .seed = 8},
          {.temperature = 0.7, .top_k = 40, .top_p = 0.9, .min_p = 0.02, .seed = 9}};
}

struct Case {
  at::Tensor logits;  // [n, V]
  std::vector<SamplingParams> params;
  std::vector<SampleInput> inputs;
  std::vector<TopkLogprobs> top;

  std::vector<RowInput> RowInputs() const {
    std::vector<RowInput> rows;
    for (const SampleInput& input : inputs) rows.push_back(RowInputOf(input));
    return rows;
  }
};

constexpr int64_t kMostTop = 9;

// Returns each row of logits with each choice of parameters. Every fifth draw asks for top tokens.
std::unique_ptr<Case> AllCases(int64_t vocab_size) {
  auto all = std::make_unique<Case>();
  const at::Tensor kinds = TestLogits(vocab_size);
  all->params = TestParams();
  const auto num_params = static_cast<int64_t>(all->params.size());
  all->logits = kinds.repeat({num_params, 1});
  all->top.resize(all->logits.size(0));
  for (int64_t row = 0; row < all->logits.size(0); ++row) {
    all->top[row].k = 1 + row % kMostTop;
    all->inputs.push_back({.params = &all->params[row / kinds.size(0)],
                           .sample_index = row % 3,
                           .position = 5 + row % 7,
                           .top = row % 5 == 0 ? &all->top[row] : nullptr});
  }
  return all;
}

TEST_CASE("Device sampler: a team of threads samples what the CPU's sampler does", "[sampling]") {
  const int64_t vocab_size = GENERATE(3, 1024, 2500);
  CAPTURE(vocab_size);
  const auto all = AllCases(vocab_size);
  const DeviceRows device = SampleByThreads(all->logits, all->RowInputs(), kMostTop);
  const TokenSamples host = SampleTokens(all->logits, all->inputs);
  for (size_t row = 0; row < host.tokens.size(); ++row) {
    CAPTURE(row, all->inputs[row].params->temperature, all->inputs[row].params->top_k,
            all->inputs[row].params->top_p, all->inputs[row].params->min_p);
    REQUIRE(device.tokens[row] == host.tokens[row]);
    REQUIRE(device.logprobs[row] == Approx(host.logprobs[row]).margin(kDeviceTolerance));
    if (all->inputs[row].top == nullptr) continue;
    const TopkLogprobs& top = all->top[row];
    for (int64_t i = 0; i < std::min(top.k, vocab_size); ++i) {
      REQUIRE(device.top_tokens[row * kMostTop + i] == top.token_ids[i]);
      if (std::isinf(top.logprobs[i])) {
        REQUIRE(device.top_logprobs[row * kMostTop + i] == top.logprobs[i]);
      } else {
        REQUIRE(device.top_logprobs[row * kMostTop + i] ==
                Approx(top.logprobs[i]).margin(kDeviceTolerance));
      }
    }
  }
}

TEST_CASE("Device sampler: logits that are not finite have no logprob", "[sampling]") {
  const float bad =
      GENERATE(std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity());
  at::Tensor logits = at::zeros({3, 200});
  logits[0][7] = bad;
  logits[1].fill_(-std::numeric_limits<float>::infinity());
  const SamplingParams params = {.temperature = 1, .top_k = 5, .seed = 2};
  const std::vector<RowInput> inputs(3, RowInputOf({&params, 0, 3}));
  const DeviceRows rows = SampleByThreads(logits, inputs, /*most_top=*/0);
  CHECK(std::isnan(rows.logprobs[0]));
  CHECK(std::isnan(rows.logprobs[1]));
  CHECK(rows.logprobs[2] == Approx(-std::log(200)).margin(kDeviceTolerance));
}

TEST_CASE("Device sampler: a GPU samples what the CPU's sampler does", "[sampling][gpu]") {
  if (!at::hasCUDA()) {
    WARN("no GPU here: not run");
    return;
  }
  const int64_t vocab_size = GENERATE(61, 2500, 151936);
  const int64_t num_rows = vocab_size > 10000 ? 64 : 1 << 20;
  const auto all = AllCases(std::min<int64_t>(vocab_size, 151936));
  const int64_t n = std::min<int64_t>(num_rows, all->logits.size(0));
  const std::span<const SampleInput> inputs(all->inputs.data(), n);
  const at::Tensor logits = all->logits.narrow(0, 0, n);
  const TokenSamples host = SampleTokens(logits, inputs);
  const std::vector<TopkLogprobs> host_top = all->top;
  for (TopkLogprobs& top : all->top) top = {.k = top.k};
  const TokenSamples device = SampleTokens(logits.to(at::kCUDA), inputs);
  for (int64_t row = 0; row < n; ++row) {
    CAPTURE(row);
    CHECK(device.tokens[row] == host.tokens[row]);
    CHECK(device.logprobs[row] == Approx(host.logprobs[row]).margin(kDeviceTolerance));
    CHECK(all->top[row].token_ids == host_top[row].token_ids);
  }
}

}  // namespace
}  // namespace lathe::worker
