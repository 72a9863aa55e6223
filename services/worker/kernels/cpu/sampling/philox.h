// Philox4x32-10 (Salmon et al., SC 2011): random numbers as a function of a key and a counter.
#pragma once

#include <array>
#include <cstdint>

namespace lathe::worker {

// Numbers, not arrays: device code cannot read an array of the host.
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

}  // namespace lathe::worker
