// One run: the real core with simulated clients, workers, stores and networks, in one thread and
// virtual time. A seed determines everything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

#include "services/engine/simulation/seeded_bugs.h"

namespace lathe::engine::simulation {

struct RunOptions {
  uint64_t seed = 1;
  SeededBug bug = SeededBug::kNone;
  size_t max_trace_lines = 0;
};

struct RunResult {
  std::string violation;  // empty: every invariant held
  uint64_t trace_hash = 0;
  int64_t num_requests = 0;  // accepted requests
  int64_t num_leaders = 0;
  int64_t virtual_time = 0;       // nanoseconds
  std::deque<std::string> trace;  // last lines
};

RunResult RunSeed(const RunOptions& options);

}  // namespace lathe::engine::simulation
