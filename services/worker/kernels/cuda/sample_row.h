// Hot file, free of torch: samples one token from one row of logits with a team of threads.
//
// GPU version of sampling_kernel.h and top_filter.h, for threads that share memory and synchronize
// at barriers. It is a template over Team, so that tests can run the same code with CPU threads:
// clang-format off
//   int rank(), size()           this thread, of how many; size is a multiple of 32
//   float* stretch_sums()        shared, one number per 1024 logits
//   void Sync()
//   float SumLanes(float)        sum over 32 neighbours in the order of ExpSum, for their first
//   float Max(float)             over all, for all
//   uint64_t Min(uint64_t)       over all, for all
//   void Sum(uint64_t (&)[n])    each of n <= kMostSums numbers, over all, for all
//   int Claim()                  0, 1, 2, … in whatever order threads ask
//   void ResetClaims()           the count starts anew; between two calls of Sync
// clang-format on
//
// All threads of a team call all functions here together.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

#include "services/worker/kernels/cpu/sampling/random_numbers.h"
#include "services/worker/kernels/cpu/vector_math.h"
#include "services/worker/kernels/cuda/sample_rows.h"

#ifdef __CUDACC__
#define LATHE_UNROLL _Pragma("unroll")
#else
#define LATHE_UNROLL
#endif

namespace lathe::worker::sampling {

inline constexpr int kNumPivots = 15;
inline constexpr int kMostSums = 2 * kNumPivots;
inline constexpr int kLanes = 32;
inline constexpr int64_t kStretch = 32 * kLanes;  // as in ExpSum
inline constexpr int kIdBits = 24;
inline constexpr uint64_t kAllKeys = ~uint64_t{0} >> 8;

// Returns a key that sorts tokens: larger number first, of equal numbers the lower id first.
LATHE_INLINE uint64_t KeyOf(float x, int64_t id) {
  const float positive_zero = x + 0.0f;
  uint32_t bits;
  std::memcpy(&bits, &positive_zero, sizeof(bits));
  const uint32_t ascending = (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
  return (uint64_t{~ascending} << kIdBits) | static_cast<uint64_t>(id);
}

LATHE_INLINE int64_t IdOf(uint64_t key) {
  return static_cast<int64_t>(key & ((uint64_t{1} << kIdBits) - 1));
}

// Converts a weight in [0, 1] to an integer, so that sums have no order; exact from 2^-20 on.
LATHE_INLINE uint64_t MassOf(float weight) { return static_cast<uint64_t>(weight * 0x1p43f); }

// A row's logits as weights exp((logit - max) / temperature), recomputed on every use.
struct Row {
  const float* logits;
  int64_t size;
  float max;
  float inverse_temperature;

  LATHE_INLINE float Weight(int64_t i) const {
    return FastExp((logits[i] - max) * inverse_temperature);
  }
};

template <typename Team>
LATHE_INLINE float LargestOf(Team& team, const float* logits, int64_t size) {
  float max = -std::numeric_limits<float>::infinity();
  for (int64_t i = team.rank(); i < size; i += team.size()) {
    max = logits[i] > max ? logits[i] : max;
  }
  return team.Max(max);
}

// Returns the sum of all weights, added in the order of ExpSum.
template <typename Team>
LATHE_INLINE double SumOfWeights(Team& team, const Row& row) {
  const int64_t num_stretches = (row.size + kStretch - 1) / kStretch;
  const int lane = team.rank() % kLanes;
  for (int64_t first = 0; first < num_stretches; first += team.size() / kLanes) {
    const int64_t stretch = first + team.rank() / kLanes;
    const int64_t end = (stretch + 1) * kStretch < row.size ? (stretch + 1) * kStretch : row.size;
    float sum = 0;
    for (int64_t i = stretch * kStretch + lane; i < end; i += kLanes) sum += row.Weight(i);
    sum = team.SumLanes(sum);
    if (lane == 0 && stretch < num_stretches) team.stretch_sums()[stretch] = sum;
  }
  team.Sync();
  double total = 0;
  for (int64_t stretch = 0; stretch < num_stretches; ++stretch) {
    total += team.stretch_sums()[stretch];
  }
  return total;
}

// Returns the smallest key such that the mass of all tokens up to it reaches `wanted`, or `last` if
// the mass up to `last` does not. item(i) -> {key, mass}. Each pass over the row narrows the range
// of keys to a sixteenth.
template <typename Team, typename Item>
LATHE_INLINE uint64_t SelectKey(Team& team, int64_t size, uint64_t last, uint64_t wanted,
                                const Item& item) {
  uint64_t low = 0;
  uint64_t high = last;
  uint64_t count_below = 0;  // keys under `low`
  while (low < high) {
    const uint64_t step = (high - low) / (kNumPivots + 1) + 1;
    uint64_t sums[kMostSums] = {};  // mass up to each pivot, then count
    for (int64_t i = team.rank(); i < size; i += team.size()) {
      const auto [key, mass] = item(i);
      LATHE_UNROLL
      for (int j = 0; j < kNumPivots; ++j) {
        const bool is_in = key < low + (j + 1) * step && key <= high;
        sums[j] += is_in ? mass : 0;
        sums[kNumPivots + j] += is_in ? 1 : 0;
      }
    }
    team.Sum(sums);
    // Find the first pivot that reaches it. Indices must be constant: the sums are in registers.
    int first = kNumPivots;
    uint64_t mass = 0;
    uint64_t count = 0;
    uint64_t below = count_below;
    LATHE_UNROLL
    for (int j = kNumPivots - 1; j >= 0; --j) {
      if (sums[j] >= wanted) {
        first = j;
        mass = sums[j];
        count = sums[kNumPivots + j];
      } else if (first == j + 1) {
        below = sums[kNumPivots + j];
      }
    }
    if (first < kNumPivots) {
      const uint64_t pivot = low + (first + 1) * step - 1;
      high = pivot < high ? pivot : high;
      // The mass is exact, or one token is left.
      if (mass == wanted || count - below == 1) return high;
    }
    low += first * step;
    count_below = below;
    if (low > high) return high;
  }
  return high;
}

// Returns the last key that top-k, then top-p keep.
template <typename Team>
LATHE_INLINE uint64_t LastKeptKey(Team& team, const Row& row, double sum, const RowInput& input) {
  struct Entry {
    uint64_t key;
    uint64_t mass;
  };
  uint64_t last = kAllKeys;
  const bool has_top_k = input.top_k > 0 && input.top_k < row.size;
  if (has_top_k) {
    last = SelectKey(team, row.size, last, static_cast<uint64_t>(input.top_k), [&](int64_t i) {
      return Entry{KeyOf(row.Weight(i), i), 1};
    });
  }
  if (input.top_p >= 1) return last;
  const auto weighed = [&](int64_t i) {
    const float weight = row.Weight(i);
    const uint64_t key = KeyOf(weight, i);
    return Entry{key, key <= last ? MassOf(weight) : 0};
  };
  double total = sum;
  if (has_top_k) {
    uint64_t mass[1] = {};
    for (int64_t i = team.rank(); i < row.size; i += team.size()) mass[0] += weighed(i).mass;
    team.Sum(mass);
    total = static_cast<double>(mass[0]) * 0x1p-43;
  }
  const auto wanted = static_cast<uint64_t>(std::ceil(input.top_p * total * 0x1p43));
  return SelectKey(team, row.size, last, wanted > 0 ? wanted : 1, weighed);
}

// Returns the token that GumbelMax of sampling_kernel.h selects among those up to key `last` with
// weight at least `least`.
template <typename Team>
LATHE_INLINE int64_t WinnerOf(Team& team, const Row& row, const RowInput& input, uint64_t last,
                              float least) {
  uint64_t best = ~uint64_t{0};  // time, then id
  for (int64_t block = team.rank(); block * 4 < row.size; block += team.size()) {
    const std::array<uint32_t, 4> bits =
        Philox({static_cast<uint32_t>(block), input.position, input.sample_index, 0}, input.seed);
    for (int64_t i = block * 4; i < block * 4 + 4 && i < row.size; ++i) {
      const float weight = row.Weight(i);
      if (weight < least || weight == 0 || KeyOf(weight, i) > last) continue;
      const float time = ExponentialOf(bits[i % 4]) / weight;
      uint32_t time_bits;
      std::memcpy(&time_bits, &time, sizeof(time_bits));
      const uint64_t entry = (uint64_t{time_bits} << 32) | static_cast<uint64_t>(i);
      best = entry < best ? entry : best;
    }
  }
  return static_cast<int64_t>(team.Min(best) & 0xffffffffu);
}

template <typename Team>
LATHE_INLINE int64_t FirstLargest(Team& team, const Row& row) {
  uint64_t first = static_cast<uint64_t>(row.size);
  for (int64_t i = team.rank(); i < row.size; i += team.size()) {
    if (row.logits[i] != row.max) continue;
    first = static_cast<uint64_t>(i);
    break;
  }
  return static_cast<int64_t>(team.Min(first));
}

LATHE_INLINE float Logprob(const Row& row, double log_sum, int64_t token) {
  return static_cast<float>(
      static_cast<double>(row.logits[token] - row.max) * row.inverse_temperature - log_sum);
}

// Writes the most likely tokens in order. `keys` [num_top] is scratch memory.
template <typename Team>
LATHE_INLINE void WriteTop(Team& team, const Row& row, double log_sum, int64_t num_top,
                           uint64_t* keys, int32_t* tokens, float* logprobs) {
  struct Entry {
    uint64_t key;
    uint64_t mass;
  };
  const int64_t count = num_top < row.size ? num_top : row.size;
  const uint64_t last =
      SelectKey(team, row.size, kAllKeys, static_cast<uint64_t>(count), [&](int64_t i) {
        return Entry{KeyOf(row.logits[i], i), 1};
      });
  team.ResetClaims();
  for (int64_t i = team.rank(); i < row.size; i += team.size()) {
    const uint64_t key = KeyOf(row.logits[i], i);
    if (key <= last) keys[team.Claim()] = key;
  }
  team.Sync();
  for (int64_t i = team.rank(); i < count; i += team.size()) {
    int64_t place = 0;
    for (int64_t other = 0; other < count; ++other) place += keys[other] < keys[i] ? 1 : 0;
    tokens[place] = static_cast<int32_t>(IdOf(keys[i]));
    logprobs[place] = Logprob(row, log_sum, IdOf(keys[i]));
  }
}

// Samples the token of one row; results as in SampleRowsTask.
template <typename Team>
LATHE_INLINE void SampleRow(Team& team, const SampleRowsTask& task, int64_t index) {
  const RowInput input = task.inputs[index];
  const float* logits = task.logits + index * task.row_stride;
  const Row row = {logits, task.vocab_size, LargestOf(team, logits, task.vocab_size),
                   input.inverse_temperature};
  const double sum = SumOfWeights(team, row);
  if (!(sum < std::numeric_limits<double>::infinity()) ||
      !(row.max < std::numeric_limits<float>::infinity()) ||
      !(row.max > -std::numeric_limits<float>::infinity())) {
    if (team.rank() == 0) task.logprobs[index] = std::numeric_limits<float>::quiet_NaN();
    if (team.rank() == 0) task.tokens[index] = 0;
    return;
  }
  const double log_sum = std::log(sum);
  int64_t token;
  if (input.is_greedy != 0) {
    token = FirstLargest(team, row);
  } else {
    token = WinnerOf(team, row, input, LastKeptKey(team, row, sum, input), input.min_p);
  }
  if (team.rank() == 0) {
    task.tokens[index] = static_cast<int32_t>(token);
    task.logprobs[index] = Logprob(row, log_sum, token);
  }
  if (input.num_top > 0) {
    const int64_t first = index * task.most_top;
    WriteTop(team, row, log_sum, input.num_top, task.top_keys + first, task.top_tokens + first,
             task.top_logprobs + first);
  }
}

}  // namespace lathe::worker::sampling
