// What a store provides to be run through the conformance suite in this folder: compile the
// store_*_conformance_test.cc files into its test binary and define MakeStoreHarness there.
#pragma once

#include <memory>

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

}  // namespace lathe::engine
