// Trace of a run: a hash, and optionally the last lines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>

#include "services/engine/core/serialize.h"
#include "services/engine/simulation/describe.h"

namespace lathe::engine::simulation {

// A 64-bit hash that is the same in every process. Not cryptographic.
uint64_t Mix(uint64_t hash, uint64_t word);
uint64_t MixBytes(uint64_t hash, std::string_view bytes);

class Trace {
 public:
  // Keeps the last `max_lines` lines. 0: builds no text.
  explicit Trace(size_t max_lines) : max_lines_(max_lines) {}

  // Adds an event or an action of a core.
  template <typename T>
  void Add(const char* who, int64_t now, const T& what) {
    buffer_.clear();
    Writer(&buffer_).Write(what);
    hash_ = MixBytes(Mix(hash_, static_cast<uint64_t>(now)), buffer_);
    if (max_lines_ > 0) AddLine(now, std::string(who) + " " + Describe(what));
  }
  // Calls `make_line` only if lines are kept.
  template <typename MakeLine>
  void Note(int64_t now, MakeLine make_line) {
    if (max_lines_ > 0) AddLine(now, make_line());
  }

  uint64_t hash() const { return hash_; }
  const std::deque<std::string>& lines() const { return lines_; }

 private:
  void AddLine(int64_t now, std::string line);

  const size_t max_lines_;
  uint64_t hash_ = 0;
  std::string buffer_;
  std::deque<std::string> lines_;
};

}  // namespace lathe::engine::simulation
