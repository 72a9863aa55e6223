#include "services/engine/store/sql/writes.h"

#include <catch2/catch.hpp>

namespace lathe::engine {
namespace {

TEST_CASE("A row that gives way to another is not asked to change what stays", "[store]") {
  CHECK(UpsertSql("t", "a, b, c", "a") ==
        "INSERT INTO t (a, b, c) VALUES (?, ?, ?)"
        " ON CONFLICT (a) DO UPDATE SET b = excluded.b, c = excluded.c");
  CHECK(UpsertSql("t", "a, b, c, d", "a, b", "d") ==
        "INSERT INTO t (a, b, c, d) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (a, b) DO UPDATE SET c = excluded.c");
}

}  // namespace
}  // namespace lathe::engine
