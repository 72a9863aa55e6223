#include "services/engine/ledger/adoption.h"

#include <algorithm>
#include <iterator>

namespace lathe::engine {
namespace {

std::vector<int64_t> Minus(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  std::vector<int64_t> rest;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(rest));
  return rest;
}

}  // namespace

Adoption CompareForAdoption(const LedgerModel& ledger, const WorkerModel& worker) {
  if (ledger.open_update && worker.applied_seq == *ledger.open_update && worker.window.empty()) {
    return Adoption::kMatches;
  }
  if (worker.applied_seq != ledger.applied_seq) return Adoption::kLost;
  if (!Minus(ledger.window, worker.window).empty()) return Adoption::kLost;
  const std::vector<int64_t> ahead = Minus(worker.window, ledger.window);
  if (Minus(ahead, ledger.open_gradients).empty()) return Adoption::kMatches;
  if (ledger.window.empty() && ahead.back() <= ledger.gradient_from_seq) {
    return Adoption::kMatchesAfterClear;
  }
  return Adoption::kLost;
}

}  // namespace lathe::engine
