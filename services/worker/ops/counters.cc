#include "services/worker/ops/counters.h"

#include <algorithm>
#include <boost/pfr/core.hpp>
#include <cstddef>
#include <iterator>

namespace lathe::worker {
namespace {

template <typename... Parts>
constexpr size_t kNumFields = (boost::pfr::tuple_size_v<Parts> + ...);

static_assert(std::size(kCounters) ==
                  kNumFields<TrainCounters, SamplingCounters, VersionCounters, CoreCounters>,
              "each counter needs a row in kCounters");

double ToDouble(int64_t count) { return static_cast<double>(count); }
double ToDouble(absl::Duration time) { return absl::ToDoubleSeconds(time); }

}  // namespace

ExecutorCounters Add(const ExecutorCounters& a, const ExecutorCounters& b) {
  ExecutorCounters total = a;
  for (const CounterRow& row : kCounters) {
    std::visit(
        [&](const auto field) {
          if (row.kind == CounterKind::kMaximum) {
            total.*field = std::max(a.*field, b.*field);
          } else {
            total.*field += b.*field;
          }
        },
        row.field);
  }
  return total;
}

double ShownValue(const ExecutorCounters& counters, const CounterRow& row) {
  return std::visit([&](const auto field) { return ToDouble(counters.*field); }, row.field);
}

}  // namespace lathe::worker
