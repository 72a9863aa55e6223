#include "services/engine/simulation/seeded_bugs.h"

#include <catch2/catch.hpp>
#include <string>

#include "services/engine/simulation/simulation.h"
#include "services/engine/simulation/world.h"

namespace lathe::engine::simulation {
namespace {

// Returns 0 if none of the seeds finds the bug.
uint64_t FirstSeedThatFinds(SeededBug bug, uint64_t num_seeds) {
  for (uint64_t seed = 1; seed <= num_seeds; ++seed) {
    if (!RunSeed({.seed = seed, .bug = bug}).violation.empty()) return seed;
  }
  return 0;
}

TEST_CASE("Seeded bugs: each is found", "[simulation]") {
  for (const SeededBug bug : AllSeededBugs()) {
    INFO(NameOf(bug));
    const uint64_t seed = FirstSeedThatFinds(bug, /*num_seeds=*/3000);
    CHECK(seed > 0);
    // The seed passes without the bug.
    CHECK(RunSeed({.seed = seed}).violation == "");
  }
}

TEST_CASE("Seeded bugs: each has a name", "[simulation]") {
  for (const SeededBug bug : AllSeededBugs()) CHECK(FindSeededBug(NameOf(bug)) == bug);
  CHECK_FALSE(FindSeededBug("no such bug").has_value());
}

}  // namespace
}  // namespace lathe::engine::simulation
