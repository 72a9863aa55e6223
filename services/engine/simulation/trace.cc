#include "services/engine/simulation/trace.h"

#include <cstring>

#include "absl/strings/str_format.h"

namespace lathe::engine::simulation {

uint64_t Mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9fb21c651e98df25;
  return hash ^ (hash >> 32);
}

uint64_t MixBytes(uint64_t hash, std::string_view bytes) {
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

void Trace::AddLine(int64_t now, std::string line) {
  const int64_t microseconds = now / 1000;
  lines_.push_back(absl::StrFormat("%12.6f %s", static_cast<double>(microseconds) / 1e6, line));
  if (lines_.size() > max_lines_) lines_.pop_front();
}

}  // namespace lathe::engine::simulation
