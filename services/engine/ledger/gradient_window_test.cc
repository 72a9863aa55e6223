#include "services/engine/ledger/gradient_window.h"

#include <catch2/catch.hpp>

namespace lathe::engine {
namespace {

using Seqs = std::vector<int64_t>;

TEST_CASE("GradientWindow: a step takes the gradient and moves applied_seq", "[ledger]") {
  GradientWindow window;
  window.Add(2, 1, 1);
  window.Add(1, 1, 1);
  CHECK(window.seqs() == Seqs{1, 2});
  window.Apply(3);
  CHECK(window.empty());
  CHECK(window.applied_seq() == 3);
  CHECK(window.from_seq() == 3);
}

TEST_CASE("GradientWindow: clearing leaves the weights where they were", "[ledger]") {
  GradientWindow window(5, 5);
  window.Add(6, 1, 1);
  window.Clear(7);
  CHECK(window.empty());
  CHECK(window.applied_seq() == 5);
  CHECK(window.from_seq() == 7);
}

TEST_CASE("GradientWindow: dropped gradients are remembered until a step or a load", "[ledger]") {
  GradientWindow window(5, 5);
  window.Drop();
  CHECK(window.dropped().empty());
  window.Add(6, 1, 1);
  window.Add(7, 1, 1);
  window.Drop();
  CHECK(window.empty());
  CHECK(window.from_seq() == 7);
  CHECK(window.applied_seq() == 5);
  window.Add(9, 1, 1);
  window.Drop();
  CHECK(window.dropped() == Seqs{6, 7, 9});
  SECTION("a step is refused") { window.Clear(10); }
  SECTION("a load replaces all") { window.Apply(10); }
  CHECK(window.dropped().empty());
}

TEST_CASE("GradientWindow: a step accepted before a failure was answered is spoiled", "[ledger]") {
  GradientWindow window;
  window.AddFailure(2, 0, 1);
  CHECK(window.SpoilingFailure(3, 100) == 2);
  window.MarkDelivered(2, 50);
  CHECK(window.SpoilingFailure(3, 49) == 2);
  CHECK_FALSE(window.SpoilingFailure(3, 50).has_value());
}

TEST_CASE("GradientWindow: a failure behind a success spoils the step, read or not", "[ledger]") {
  GradientWindow window;
  window.Add(1, 10, 1);
  window.AddFailure(2, 0, 1);
  CHECK(window.SpoilingFailure(3, 100) == 2);
  window.MarkDelivered(2, 50);
  CHECK(window.SpoilingFailure(3, 100) == 2);
  window.Clear(3);
  CHECK_FALSE(window.SpoilingFailure(4, 100).has_value());
}

TEST_CASE("GradientWindow: what followed a failure counts once its answer was written",
          "[ledger]") {
  GradientWindow window;
  window.AddFailure(1, 50, 1);
  SECTION("accepted after it") {
    window.Add(2, 60, 1);
    window.Add(3, 50, 1);
    CHECK_FALSE(window.SpoilingFailure(4, 100).has_value());
  }
  SECTION("one was accepted before it") {
    window.Add(2, 60, 1);
    window.Add(3, 49, 1);
    CHECK(window.SpoilingFailure(4, 100) == 1);
  }
  SECTION("the time of one is unknown") {
    window.Add(2, 0, 1);
    CHECK(window.SpoilingFailure(4, 100) == 1);
  }
}

TEST_CASE("GradientWindow: what may be the rest of a failed batch is no gradient of its own",
          "[ledger]") {
  const int64_t first = GENERATE(1, kSplitBatchBytes);
  const int64_t next = GENERATE(1, kSplitBatchBytes);
  GradientWindow window;
  window.AddFailure(1, 50, first);
  CHECK_FALSE(window.SpoilingFailure(2, 100).has_value());
  window.Add(2, 60, next);
  CHECK(window.SpoilingFailure(3, 100).has_value() == (first + next > kSplitBatchBytes));
}

TEST_CASE("GradientWindow: a second failure spoils the step though both were read", "[ledger]") {
  GradientWindow window;
  window.AddFailure(1, 50, 1);
  window.Add(2, 60, 1);
  window.AddFailure(3, 70, 1);
  CHECK(window.SpoilingFailure(4, 100) == 3);
  SECTION("a load begins a new gradient") { window.Apply(4); }
  SECTION("so does a refusal") { window.Clear(4); }
  window.Add(5, 110, 1);
  CHECK_FALSE(window.SpoilingFailure(6, 120).has_value());
}

TEST_CASE("GradientWindow: a later delivery of the same failure changes nothing", "[ledger]") {
  GradientWindow window;
  window.AddFailure(2, 0, 1);
  window.MarkDelivered(2, 50);
  window.MarkDelivered(2, 90);
  CHECK_FALSE(window.SpoilingFailure(3, 60).has_value());
}

TEST_CASE("GradientWindow: a failure above the step belongs to the next gradient", "[ledger]") {
  GradientWindow window;
  window.AddFailure(1, 0, 1);
  window.AddFailure(4, 0, 1);
  window.Apply(3);
  CHECK(window.SpoilingFailure(5, 100) == 4);
}

TEST_CASE("GradientWindow: a failure known early does not spoil the step before it", "[ledger]") {
  GradientWindow window;
  window.Add(1, 1, 1);
  window.AddFailure(3, 0, 1);
  CHECK_FALSE(window.SpoilingFailure(2, 100).has_value());
  CHECK(window.SpoilingFailure(4, 100) == 3);
}

TEST_CASE("GradientWindow: a failed step leaves what its worker still holds", "[ledger]") {
  GradientWindow window;
  window.Add(1, 1, 1);
  window.Add(2, 1, 1);
  window.Replace(3, {1, 2});
  CHECK(window.seqs() == Seqs{1, 2});
  window.AddFailure(4, 0, 1);
  CHECK(window.SpoilingFailure(5, 100) == 4);
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
