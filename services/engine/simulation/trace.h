// Trace of a run: a hash, and optionally the last lines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

#include "services/engine/simulation/describe.h"
#include "services/engine/simulation/value_hash.h"

namespace lathe::engine::simulation {

class Trace {
 public:
  // Keeps the last `max_lines` lines. 0: builds no text.
  explicit Trace(size_t max_lines) : max_lines_(max_lines) {}

  // Adds an event or an action of a core.
  template <typename T>
  void Add(const char* who, int64_t now, const T& what) {
    hash_ = Mix(Mix(hash_, static_cast<uint64_t>(now)), ValueHash(what));
    if (max_lines_ > 0) AddLine(now, std::string(who) + " " + Describe(what));
  }
  // Calls `make_line` only if lines are kept.
  template <typename MakeLine>
  void Log(int64_t now, MakeLine make_line) {
    if (max_lines_ > 0) AddLine(now, make_line());
  }

  uint64_t hash() const { return hash_; }
  const std::deque<std::string>& lines() const { return lines_; }

 private:
  void AddLine(int64_t now, std::string line);

  const size_t max_lines_;
  uint64_t hash_ = 0;
  std::deque<std::string> lines_;
};

}  // namespace lathe::engine::simulation
