#include "services/engine/ledger/gradient_window.h"

#include <catch2/catch.hpp>

namespace lathe::engine {
namespace {

using Seqs = std::vector<int64_t>;

TEST_CASE("GradientWindow: a step takes the gradient and moves applied_seq", "[ledger]") {
  GradientWindow window;
  window.Add(2);
  window.Add(1);
  CHECK(window.seqs() == Seqs{1, 2});
  window.Apply(3);
  CHECK(window.empty());
  CHECK(window.applied_seq() == 3);
  CHECK(window.from_seq() == 3);
}

TEST_CASE("GradientWindow: clearing leaves the weights where they were", "[ledger]") {
  GradientWindow window(5, 5);
  window.Add(6);
  window.Clear(7);
  CHECK(window.empty());
  CHECK(window.applied_seq() == 5);
  CHECK(window.from_seq() == 7);
}

TEST_CASE("GradientWindow: dropped gradients are remembered until a step or a load", "[ledger]") {
  GradientWindow window(5, 5);
  window.Drop();
  CHECK(window.dropped().empty());
  window.Add(6);
  window.Add(7);
  window.Drop();
  CHECK(window.empty());
  CHECK(window.from_seq() == 7);
  CHECK(window.applied_seq() == 5);
  window.Add(9);
  window.Drop();
  CHECK(window.dropped() == Seqs{6, 7, 9});
  SECTION("a step is refused") { window.Clear(10); }
  SECTION("a load replaces all") { window.Apply(10); }
  CHECK(window.dropped().empty());
}

TEST_CASE("GradientWindow: a step accepted before the failure was delivered is incomplete",
          "[ledger]") {
  GradientWindow window;
  window.Add(1);
  window.AddFailure(2, 0);
  CHECK(window.FailureUnknownTo(3, 100) == 2);
  window.MarkDelivered(2, 50);
  CHECK(window.FailureUnknownTo(3, 49) == 2);
  CHECK_FALSE(window.FailureUnknownTo(3, 50).has_value());
}

TEST_CASE("GradientWindow: a later delivery of the same failure changes nothing", "[ledger]") {
  GradientWindow window;
  window.AddFailure(2, 0);
  window.MarkDelivered(2, 50);
  window.MarkDelivered(2, 90);
  CHECK_FALSE(window.FailureUnknownTo(3, 60).has_value());
}

TEST_CASE("GradientWindow: a failure above the step belongs to the next gradient", "[ledger]") {
  GradientWindow window;
  window.AddFailure(1, 0);
  window.AddFailure(4, 0);
  window.Apply(3);
  CHECK(window.FailureUnknownTo(5, 100) == 4);
}

TEST_CASE("GradientWindow: a failure known early does not spoil the step before it", "[ledger]") {
  GradientWindow window;
  window.Add(1);
  window.AddFailure(3, 0);
  CHECK_FALSE(window.FailureUnknownTo(2, 100).has_value());
  CHECK(window.FailureUnknownTo(4, 100) == 3);
}

TEST_CASE("GradientWindow: a failed step leaves what its worker still holds", "[ledger]") {
  GradientWindow window;
  window.Add(1);
  window.Add(2);
  window.Replace(3, {1, 2});
  CHECK(window.seqs() == Seqs{1, 2});
  window.Replace(4, {});
  CHECK(window.empty());
  CHECK(window.from_seq() == 4);
}

TEST_CASE("GradientWindow: seqs survive their text form", "[ledger]") {
  const Seqs seqs = GENERATE(Seqs{}, Seqs{7}, Seqs{1, 20, 300});
  CHECK(DecodeSeqs(EncodeSeqs(seqs)) == seqs);
}

}  // namespace
}  // namespace lathe::engine
