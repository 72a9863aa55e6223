// A hash that is the same in every process. Not cryptographic.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace lathe::engine {

// Mixes 64 bits into a hash.
inline uint64_t Mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9fb21c651e98df25;
  return hash ^ (hash >> 32);
}

inline uint64_t MixBytes(uint64_t hash, std::string_view bytes) {
  hash = Mix(hash, bytes.size());
  while (bytes.size() >= sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof(word));
    hash = Mix(hash, word);
    bytes.remove_prefix(sizeof(word));
  }
  uint64_t word = 0;
  std::memcpy(&word, bytes.data(), bytes.size());
  return Mix(hash, word);
}

}  // namespace lathe::engine
