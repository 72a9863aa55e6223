// A number by which ranks tell whether they are the same.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "services/worker/executor/executor_port.h"

namespace lathe::worker {

// Of all that was added, in order (FNV-1a, 64 bits). What depends on clocks or on the rows that a
// rank computes, or is known to one rank only, does not count.
class Fingerprint {
 public:
  // The tokens that were drawn.
  void Add(const std::vector<ReportEvent>& reports);
  // What was run so far.
  void Add(const ExecutorCounters& counters);
  // What there is.
  void Add(const std::vector<ModelState>& models, const std::vector<HeldVersion>& versions);

  uint64_t value() const { return value_; }

 private:
  void Number(int64_t number);
  void Text(std::string_view text);

  uint64_t value_ = 0xcbf29ce484222325;
};

}  // namespace lathe::worker
