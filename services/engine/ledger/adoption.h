// Whether what a living worker holds of a model is what the ledger expects.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace lathe::engine {

// The model as the ledger has it.
struct LedgerModel {
  int64_t applied_seq = 0;
  int64_t gradient_from_seq = 0;  // gradients up to here are stepped or cleared
  std::vector<int64_t> window;    // ascending
  // May have been executed, with results that the ledger has not seen.
  std::vector<int64_t> open_gradients;  // forward_backwards
  std::optional<int64_t> open_update;   // an optim_step or a load
};

// The model as its worker reports it.
struct WorkerModel {
  int64_t applied_seq = 0;
  std::vector<int64_t> window;  // ascending
};

enum class Adoption {
  kMatches,
  // The accumulator still has a gradient that the ledger has cleared: the clearing got lost.
  kMatchesAfterClear,
  kLost,
};

// A worker may be ahead by operations that were ready under the committed ledger; it is never
// behind.
Adoption CompareForAdoption(const LedgerModel& ledger, const WorkerModel& worker);

}  // namespace lathe::engine
