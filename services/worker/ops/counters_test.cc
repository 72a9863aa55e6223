#include "services/worker/ops/counters.h"

#include <catch2/catch.hpp>
#include <set>
#include <string>

namespace lathe::worker {
namespace {

using Number = int64_t ExecutorCounters::*;
using Time = absl::Duration ExecutorCounters::*;

void Set(const CounterRow& row, int64_t value, ExecutorCounters& counters) {
  if (const auto* number = std::get_if<Number>(&row.field)) counters.*(*number) = value;
  if (const auto* time = std::get_if<Time>(&row.field)) counters.*(*time) = absl::Seconds(value);
}

TEST_CASE("each counter has its own field and metric", "[ops]") {
  ExecutorCounters counters;
  std::set<std::string> metrics;
  int64_t value = 0;
  for (const CounterRow& row : kCounters) Set(row, ++value, counters);
  value = 0;
  for (const CounterRow& row : kCounters) {
    CHECK(ShownValue(counters, row) == static_cast<double>(++value));
    CHECK(metrics.insert(row.metric).second);
  }
}

TEST_CASE("counters of two cores add up, and the higher peak stays", "[ops]") {
  ExecutorCounters a;
  ExecutorCounters b;
  for (const CounterRow& row : kCounters) {
    Set(row, 3, a);
    Set(row, 5, b);
  }
  const ExecutorCounters total = Add(a, b);
  for (const CounterRow& row : kCounters) {
    CHECK(ShownValue(total, row) == (row.kind == CounterKind::kMaximum ? 5 : 8));
  }
  CHECK(total.train_tokens == 8);
  CHECK(total.arena_peak_bytes == 5);
  CHECK(Add(b, a).arena_peak_bytes == 5);
  CHECK(total.snapshot_time == absl::Seconds(8));
}

}  // namespace
}  // namespace lathe::worker
