// The interface between a store and the conformance suite in this directory. A store's test binary
// compiles the store_*_conformance_test.cc files and defines MakeStoreHarness.
#pragma once

#include <memory>
#include <vector>

#include <catch2/catch.hpp>

#include "services/engine/store/sql/sql_connection.h"
#include "services/engine/store/store.h"

namespace lathe::engine {

// An empty store that lives as long as the harness.
class StoreHarness {
 public:
  virtual ~StoreHarness() = default;

  virtual Store& store() = 0;
  // Simulates the death of the process: drops the object without a shutdown and opens its data
  // again.
  virtual void Reopen() = 0;
  // Returns a connection to the database that is not the store's.
  virtual std::unique_ptr<SqlConnection> Connect() = 0;
};

std::unique_ptr<StoreHarness> MakeStoreHarness();

// Takes leadership and commits `writes`.
inline void CommitAsLeader(Store& store, const std::vector<Write>& writes) {
  const absl::StatusOr<StoredState> state = store.TakeLeadership();
  REQUIRE(state.ok());
  const absl::Status status = store.Commit(state->term, writes, {});
  INFO(status);
  REQUIRE(status.ok());
}

// Runs a purge to its end. Returns its number of pieces.
inline int PurgeAll(Store& store, int64_t term, const PurgeResults& what) {
  PurgePass pass;
  pass.what = what;
  int num_pieces = 0;
  for (; pass.phase != PurgePass::Phase::kOver; ++num_pieces) {
    const absl::Status status = store.PurgePiece(term, pass);
    INFO(status);
    REQUIRE(status.ok());
  }
  return num_pieces;
}

}  // namespace lathe::engine
