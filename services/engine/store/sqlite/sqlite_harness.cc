#include "services/engine/store/sqlite/sqlite_harness.h"

#include <catch2/catch.hpp>
#include <utility>

namespace lathe::engine {

void SqliteHarness::Reopen() {
  store_.reset();
  absl::StatusOr<std::unique_ptr<SqliteStore>> opened = SqliteStore::Open(options());
  INFO(opened.status());
  REQUIRE(opened.ok());
  store_ = *std::move(opened);
}

std::unique_ptr<SqlConnection> SqliteHarness::Connect() {
  return std::make_unique<Connection>(options().database.string(), SQLite::OPEN_READWRITE);
}

SqliteStore::Options SqliteHarness::options() const {
  return {.database = dir() / "lathe.db", .bodies_dir = dir() / "bodies"};
}

std::unique_ptr<StoreHarness> MakeStoreHarness() { return std::make_unique<SqliteHarness>(); }

}  // namespace lathe::engine
