// Comparison of the state that a living worker holds of a model with the ledger.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace lathe::engine {

// The model in the ledger.
struct LedgerModel {
  int64_t applied_seq = 0;
  int64_t gradient_from_seq = 0;  // gradients up to this seq are stepped or cleared
  std::vector<int64_t> window;    // ascending
  // The worker may have executed these, although the ledger has not seen their results.
  std::vector<int64_t> open_gradients;  // forward_backwards
  std::optional<int64_t> open_update;   // an optim_step or a load
};

// The model in its worker's report.
struct WorkerModel {
  int64_t applied_seq = 0;
  std::vector<int64_t> window;  // ascending
};

enum class Adoption {
  kMatches,
  // The accumulator still has a gradient that the ledger has cleared: the worker missed the
  // SendClearGradient.
  kMatchesAfterClear,
  kLost,
};

// A worker may be ahead by operations that were ready under the committed ledger. It is never
// behind.
Adoption CompareForAdoption(const LedgerModel& ledger, const WorkerModel& worker);

}  // namespace lathe::engine
