// The conformance suite's access to the SQLite store.
#pragma once

#include <filesystem>
#include <memory>

#include "services/engine/store/sqlite/connection.h"
#include "services/engine/store/sqlite/sqlite_store.h"
#include "services/engine/store/testing/store_harness.h"
#include "services/engine/store/testing/temp_dir.h"

namespace lathe::engine {

class SqliteHarness : public StoreHarness {
 public:
  SqliteHarness() { Reopen(); }

  Store& store() override { return *store_; }
  void Reopen() final;
  std::unique_ptr<SqlConnection> Connect() override;

  const std::filesystem::path& dir() const { return dir_.path(); }
  SqliteStore::Options options() const;

 private:
  TempDir dir_;
  std::unique_ptr<SqliteStore> store_;
};

// Returns the first column of the first row.
inline int64_t ReadInt(Connection& connection, const std::string& sql) {
  Query query = connection.Prepare(sql);
  query.Next();
  return query.Int();
}

}  // namespace lathe::engine
