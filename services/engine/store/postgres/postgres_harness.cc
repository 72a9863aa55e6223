#include "services/engine/store/postgres/postgres_harness.h"

#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"

namespace lathe::engine {
namespace {

std::string ServerUrl() {
  const char* url = std::getenv("LATHE_TEST_POSTGRES");
  if (url == nullptr) {
    throw std::runtime_error(
        "LATHE_TEST_POSTGRES is not set: run tests/support/postgres_cluster.py run -- <test>");
  }
  return url;
}

}  // namespace

TestDatabase::TestDatabase() {
  static std::atomic<int> num_made = 0;
  name_ = absl::StrCat("test_", getpid(), "_", num_made++);
  url_ = absl::StrCat(ServerUrl(), "&options=-csearch_path%3D", name_);
  Connect().Execute(absl::StrCat("CREATE SCHEMA ", name_));
}

TestDatabase::~TestDatabase() {
  try {
    Connect().Execute(absl::StrCat("DROP SCHEMA ", name_, " CASCADE"));
  } catch (const pqxx::pqxx_exception&) {
    // The test's server is removed after the test anyway.
  }
}

PostgresConnection TestDatabase::Connect() const {
  constexpr absl::Duration kPatience = absl::Minutes(2);
  return PostgresConnection({.url = url_,
                             .connect_timeout = kPatience,
                             .statement_timeout = kPatience,
                             .lock_timeout = kPatience});
}

void PostgresHarness::Reopen() {
  store_.reset();
  absl::StatusOr<std::unique_ptr<PostgresStore>> opened =
      PostgresStore::Open({.url = database_.url()});
  INFO(opened.status());
  REQUIRE(opened.ok());
  store_ = *std::move(opened);
}

std::unique_ptr<SqlConnection> PostgresHarness::Connect() {
  return std::unique_ptr<SqlConnection>(new PostgresConnection(database_.Connect()));
}

std::unique_ptr<StoreHarness> MakeStoreHarness() { return std::make_unique<PostgresHarness>(); }

}  // namespace lathe::engine
