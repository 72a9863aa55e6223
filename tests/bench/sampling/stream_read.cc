#include "tests/bench/sampling/stream_read.h"

namespace lathe::worker {

// Eight independent accumulators hide the latency of the XOR that a single one would wait for.
__attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"))) uint64_t ReadStream(
    std::span<const uint64_t> words, int64_t begin, int64_t end) {
  typedef uint64_t Vector __attribute__((vector_size(64), aligned(8), may_alias));
  constexpr int64_t kVectors = 8;
  constexpr int64_t kWords = 8;
  Vector sums[kVectors] = {};
  int64_t i = begin;
  for (; i + kVectors * kWords <= end; i += kVectors * kWords) {
    const auto* from = reinterpret_cast<const Vector*>(words.data() + i);
    for (int64_t v = 0; v < kVectors; ++v) sums[v] ^= from[v];
  }
  uint64_t sum = 0;
  for (; i < end; ++i) sum ^= words[static_cast<size_t>(i)];
  for (const Vector& vector : sums) {
    for (int64_t word = 0; word < kWords; ++word) sum ^= vector[word];
  }
  return sum;
}

}  // namespace lathe::worker
