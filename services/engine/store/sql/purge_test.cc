#include "services/engine/store/sql/purge.h"

#include <catch2/catch.hpp>

#include "absl/time/time.h"

namespace lathe::engine {
namespace {

TEST_CASE("NextPieceRows: a piece has as many rows as fit into its time", "[store]") {
  CHECK(NextPieceRows(100, kPieceTime) == 100);
  CHECK(NextPieceRows(100, kPieceTime * 5 / 4) == 80);
  CHECK(NextPieceRows(100, kPieceTime * 4 / 5) == 125);
}

TEST_CASE("NextPieceRows: one time changes the size at most by a factor of two", "[store]") {
  CHECK(NextPieceRows(100, kPieceTime * 1000) == 50);
  CHECK(NextPieceRows(100, kPieceTime / 1000) == 200);
  CHECK(NextPieceRows(100, absl::ZeroDuration()) == 200);
}

TEST_CASE("NextPieceRows: the size has bounds", "[store]") {
  CHECK(NextPieceRows(kMinPurgedRows, absl::Hours(1)) == kMinPurgedRows);
  CHECK(NextPieceRows(kMaxPurgedRows, absl::ZeroDuration()) == kMaxPurgedRows);
}

TEST_CASE("NextPieceRows: pieces of a steady cost soon keep their time", "[store]") {
  const absl::Duration sync = kPieceTime / 4;
  const absl::Duration per_row = kPieceTime / 200;
  int64_t rows = kMinPurgedRows;
  absl::Duration took;
  for (int i = 0; i < 20; ++i) {
    took = sync + per_row * rows;
    rows = NextPieceRows(rows, took);
  }
  CHECK(took > kPieceTime * 0.9);
  CHECK(took <= kPieceTime * 1.1);
}

}  // namespace
}  // namespace lathe::engine
