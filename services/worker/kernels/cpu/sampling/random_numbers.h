// Random numbers that are the same on every device, uniform and exponential. For kernels only.
#pragma once

#include <array>
#include <cstdint>

#include "services/worker/kernels/cpu/vector_math.h"

namespace lathe::worker {

// Constants of Philox4x32-10 (Salmon et al., SC 2011), which makes random bits from a key and a
// counter. Numbers, not arrays: device code cannot read an array of the host.
inline constexpr uint32_t kPhiloxMultiplier0 = 0xD2511F53;
inline constexpr uint32_t kPhiloxMultiplier1 = 0xCD9E8D57;
inline constexpr uint32_t kPhiloxKeyStep0 = 0x9E3779B9;
inline constexpr uint32_t kPhiloxKeyStep1 = 0xBB67AE85;

constexpr std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, uint64_t key) {
  uint32_t k0 = static_cast<uint32_t>(key);
  uint32_t k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{kPhiloxMultiplier0} * counter[0];
    const uint64_t p1 = uint64_t{kPhiloxMultiplier1} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ k0, static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += kPhiloxKeyStep0;
    k1 += kPhiloxKeyStep1;
  }
  return counter;
}

// Returns a uniform number in (0, 1) from random bits.
LATHE_INLINE float UniformOf(uint32_t bits) {
  return (static_cast<float>(bits >> 1) + 0.5f) * 0x1p-31f;
}

// Returns -log(1 - u) for that uniform number u. Small results decide a sample, so they keep their
// relative precision: log(w) · u / (1 - w) undoes the rounding of w = 1 - u.
LATHE_INLINE float ExponentialOf(uint32_t bits) {
  const float u = UniformOf(bits);
  const float w = 1.0f - u < 0x1p-24f ? 0x1p-24f : 1.0f - u;
  const float rounded = 1.0f - w;
  return rounded == 0.0f ? u : -FastLog(w) * (u / (rounded == 0.0f ? 1.0f : rounded));
}

}  // namespace lathe::worker
