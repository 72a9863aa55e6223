// The only source of randomness in a run.
#pragma once

#include <cstdint>

namespace lathe::engine::simulation {

// SplitMix64 (Steele, Lea, Flood 2014): the same numbers on every machine, and cheap to seed.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  // Returns a number from 0 to bound - 1.
  int64_t Below(int64_t bound) {
    return static_cast<int64_t>(Next() % static_cast<uint64_t>(bound));
  }
  // Both bounds are included.
  int64_t Between(int64_t low, int64_t high) { return low + Below(high - low + 1); }
  bool Chance(int64_t per_mille) { return per_mille > 0 && Below(1000) < per_mille; }

 private:
  uint64_t state_;
};

}  // namespace lathe::engine::simulation
