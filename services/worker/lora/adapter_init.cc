#include "services/worker/lora/adapter_init.h"

#include <cmath>

namespace lathe::worker {
namespace {

// The finalizer of SplitMix64 (Steele, Lea, Flood 2014): a bijection. Its outputs over a counter
// pass tests for independence.
uint64_t Mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

uint64_t Fnv1a(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

}  // namespace

void FillKaimingUniform(at::Tensor matrix, uint64_t seed, std::string_view name,
                        int64_t in_features, int64_t first_column) {
  constexpr uint64_t kGolden = 0x9e3779b97f4a7c15ULL;
  const uint64_t key = Mix(Mix(seed + kGolden) ^ Fnv1a(name));
  const double bound = 1.0 / std::sqrt(static_cast<double>(in_features));
  float* values = matrix.mutable_data_ptr<float>();
  for (int64_t row = 0; row < matrix.size(0); ++row) {
    for (int64_t column = 0; column < matrix.size(1); ++column) {
      const int64_t i = row * in_features + first_column + column;
      const uint64_t bits = Mix(key + kGolden * static_cast<uint64_t>(i + 1));
      const double unit = static_cast<double>(bits >> 11) * 0x1.0p-53;  // [0, 1)
      *values++ = static_cast<float>((2.0 * unit - 1.0) * bound);
    }
  }
}

}  // namespace lathe::worker
