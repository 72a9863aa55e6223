#include "services/engine/ledger/seq_order.h"

#include <catch2/catch.hpp>

namespace lathe::engine {
namespace {

using Seqs = std::vector<int64_t>;

void AddGradient(SeqOrder& order, int64_t seq, int64_t arrived_at = 0) {
  order.Add(seq, {/*is_barrier=*/false, arrived_at});
}

void AddBarrier(SeqOrder& order, int64_t seq) { order.Add(seq, {/*is_barrier=*/true, 0}); }

TEST_CASE("SeqOrder: operations between two barriers are ready together", "[ledger]") {
  SeqOrder order;
  AddGradient(order, 1);
  AddGradient(order, 2);
  AddBarrier(order, 3);
  AddGradient(order, 4);
  CHECK(order.TakeReady() == Seqs{1, 2});
  order.Resolve(2);
  CHECK(order.TakeReady().empty());
  order.Resolve(1);
  CHECK(order.TakeReady() == Seqs{3});
  CHECK(order.TakeReady().empty());
  order.Resolve(3);
  CHECK(order.TakeReady() == Seqs{4});
}

TEST_CASE("SeqOrder: a barrier waits for the barrier before it", "[ledger]") {
  SeqOrder order;
  AddBarrier(order, 1);
  AddBarrier(order, 2);
  CHECK(order.TakeReady() == Seqs{1});
  order.Resolve(1);
  CHECK(order.TakeReady() == Seqs{2});
}

TEST_CASE("SeqOrder: a missing seq holds back the seqs above it until it arrives", "[ledger]") {
  SeqOrder order;
  AddGradient(order, 2);
  AddGradient(order, 3);
  CHECK(order.TakeReady().empty());
  CHECK(order.IsMissingBelow(2));
  AddGradient(order, 1);
  CHECK_FALSE(order.IsMissingBelow(3));
  CHECK(order.TakeReady() == Seqs{1, 2, 3});
}

TEST_CASE("SeqOrder: closing a gap releases the operations that waited above it", "[ledger]") {
  SeqOrder order;
  AddGradient(order, 4);
  order.Close(3);
  CHECK(order.TakeReady() == Seqs{4});
  CHECK(order.closed_seq() == 3);
}

TEST_CASE("SeqOrder: arrivals below a closed seq still run in order", "[ledger]") {
  SeqOrder order;
  AddGradient(order, 1);
  AddBarrier(order, 5);
  order.Close(4);
  CHECK(order.TakeReady() == Seqs{1});
  order.Resolve(1);
  CHECK(order.TakeReady() == Seqs{5});
}

TEST_CASE("SeqOrder: which arrivals prove smaller seqs abandoned", "[ledger]") {
  struct Row {
    bool serial;
    bool is_barrier;
    int64_t closed;
  };
  const Row row =
      GENERATE(Row{true, true, 6}, Row{true, false, 6}, Row{false, true, 6}, Row{false, false, 2});
  const SeqOrder order(2);
  CHECK(order.ClosedByArrival(7, row.serial, row.is_barrier) == row.closed);
}

TEST_CASE("SeqOrder: only operations that have waited long enough above a gap are overdue",
          "[ledger]") {
  SeqOrder order;
  AddGradient(order, 1, 10);
  AddGradient(order, 3, 20);
  AddGradient(order, 5, 40);
  CHECK_FALSE(order.OverdueAboveGap(19).has_value());
  CHECK(order.OverdueAboveGap(20) == 3);
  CHECK(order.OverdueAboveGap(40) == 5);
  REQUIRE(order.FirstGap());
  CHECK(order.FirstGap()->waited_since == 20);
  CHECK(order.FirstGap()->missing_seq == 2);
  order.Resolve(3);
  CHECK_FALSE(order.OverdueAboveGap(20).has_value());
  CHECK(order.FirstGap()->waited_since == 40);
  AddGradient(order, 7, 30);
  CHECK(order.FirstGap()->waited_since == 30);
  CHECK(order.OverdueAboveGap(30) == 7);
  order.Close(6);
  CHECK_FALSE(order.FirstGap());
  CHECK_FALSE(order.OverdueAboveGap(40).has_value());
}

TEST_CASE("SeqOrder: an operation that ended before its turn is passed over", "[ledger]") {
  SeqOrder order;
  AddBarrier(order, 1);
  AddGradient(order, 2);
  AddGradient(order, 3);
  order.Resolve(2);
  CHECK(order.TakeReady() == Seqs{1});
  order.Resolve(1);
  CHECK(order.TakeReady() == Seqs{3});
  CHECK(order.Unresolved() == Seqs{3});
}

TEST_CASE("SeqOrder: resolved-through stops at the first open or missing seq", "[ledger]") {
  SeqOrder order;
  AddGradient(order, 1);
  AddGradient(order, 2);
  AddGradient(order, 4);
  order.TakeReady();
  CHECK(order.ResolvedThrough() == 0);
  order.Resolve(2);
  CHECK(order.ResolvedThrough() == 0);
  order.Resolve(1);
  CHECK(order.ResolvedThrough() == 2);
  order.Close(3);
  CHECK(order.ResolvedThrough() == 3);
}

TEST_CASE("SeqOrder: the next free seq is above everything seen or closed", "[ledger]") {
  SeqOrder order(4);
  CHECK(order.NextFreeSeq() == 5);
  AddGradient(order, 9);
  CHECK(order.NextFreeSeq() == 10);
}

TEST_CASE("SeqOrder: issued operations are those taken and not ended", "[ledger]") {
  SeqOrder order;
  AddGradient(order, 1);
  AddGradient(order, 2);
  AddBarrier(order, 3);
  order.TakeReady();
  order.Resolve(1);
  CHECK(order.Issued() == Seqs{2});
  CHECK(order.IsIssued(2));
  CHECK_FALSE(order.IsIssued(3));
}

}  // namespace
}  // namespace lathe::engine
