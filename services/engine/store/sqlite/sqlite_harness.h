// The conformance suite's access to the SQLite store.
#pragma once

#include <filesystem>
#include <memory>

#include "services/engine/store/sqlite/sqlite_store.h"
#include "services/engine/store/testing/store_harness.h"
#include "services/engine/store/testing/temp_dir.h"

namespace lathe::engine {

class SqliteHarness : public StoreHarness {
 public:
  SqliteHarness() { Reopen(); }

  Store& store() override { return *store_; }
  void Reopen() final;

  const std::filesystem::path& dir() const { return dir_.path(); }
  SqliteStore::Options options() const;

 private:
  TempDir dir_;
  std::unique_ptr<SqliteStore> store_;
};

}  // namespace lathe::engine
