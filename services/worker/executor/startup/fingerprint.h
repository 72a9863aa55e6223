// A hash by which ranks detect that they have diverged.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "services/worker/executor/executor_port.h"

namespace lathe::worker {

// Hash of everything that was added, in order (FNV-1a, 64 bits). Excludes data that depends on
// clocks or on the rows that a rank computes, or that only one rank has.
class Fingerprint {
 public:
  // Adds the sampled tokens.
  void Add(const std::vector<ReportEvent>& reports);
  // Adds the sums of numbers, such as passes and operations so far.
  void Add(const ExecutorCounters& counters);
  // Adds the existing models and versions.
  void Add(const std::vector<ModelState>& models, const std::vector<HeldVersion>& versions);

  uint64_t value() const { return value_; }

 private:
  void Number(int64_t number);
  void Text(std::string_view text);

  uint64_t value_ = 0xcbf29ce484222325;
};

}  // namespace lathe::worker
