// What a store provides to be run through the conformance suite in this folder: compile the
// store_*_conformance_test.cc files into its test binary and define MakeStoreHarness there.
#pragma once

#include <memory>
#include <vector>

#include <catch2/catch.hpp>

#include "services/engine/store/store.h"

namespace lathe::engine {

// An empty store that lives as long as the harness.
class StoreHarness {
 public:
  virtual ~StoreHarness() = default;

  virtual Store& store() = 0;
  // As after the death of the process: drops the object without telling it, opens its data anew.
  virtual void Reopen() = 0;
};

std::unique_ptr<StoreHarness> MakeStoreHarness();

// Takes leadership and commits.
inline void CommitAsLeader(Store& store, const std::vector<Write>& writes) {
  const absl::StatusOr<StoredState> state = store.TakeLeadership();
  REQUIRE(state.ok());
  const absl::Status status = store.Commit(state->term, writes, {});
  INFO(status);
  REQUIRE(status.ok());
}

}  // namespace lathe::engine
