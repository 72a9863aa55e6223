// The conformance suite's access to the Postgres store. Tests run under
// tests/support/postgres_cluster.py, which puts the server's address in LATHE_TEST_POSTGRES.
#pragma once

#include <memory>
#include <string>

#include "services/engine/store/postgres/postgres_store.h"
#include "services/engine/store/testing/store_harness.h"

namespace lathe::engine {

// A schema for one test, dropped when destroyed. A schema is quicker to make than a database.
class TestDatabase {
 public:
  TestDatabase();
  TestDatabase(const TestDatabase&) = delete;
  ~TestDatabase();

  const std::string& url() const { return url_; }
  // Waits longer than the store does: a test's own connection is not tried again.
  PostgresConnection Connect() const;

 private:
  std::string name_;
  std::string url_;
};

class PostgresHarness : public StoreHarness {
 public:
  PostgresHarness() { Reopen(); }

  Store& store() override { return *store_; }
  void Reopen() final;
  std::unique_ptr<SqlConnection> Connect() override;

  const TestDatabase& database() const { return database_; }

 private:
  TestDatabase database_;
  std::unique_ptr<PostgresStore> store_;
};

}  // namespace lathe::engine
