#include "services/engine/simulation/simulation.h"

#include <array>
#include <catch2/catch.hpp>
#include <cstdio>
#include <set>
#include <sstream>
#include <string>
#include <variant>

#include "absl/strings/str_format.h"
#include "services/engine/core/events.h"
#include "services/engine/simulation/type_name.h"

namespace lathe::engine::simulation {
namespace {

// Each seed once violated an invariant.
constexpr uint64_t kRegressionSeeds[] = {
    4738,    // a completed load failed under the next leader
    142162,  // kills before the workers' parent had reached the leader
    33405,   // commands to rank 0 before all ranks had joined never ended
};

void CheckSeed(uint64_t seed) {
  const RunResult result = RunSeed({.seed = seed});
  INFO("lathe-engine-simulation --trace --seed " << seed);
  CHECK(result.violation == "");
}

TEST_CASE("Simulation: seeds that broke an invariant once", "[simulation]") {
  for (const uint64_t seed : kRegressionSeeds) CheckSeed(seed);
}

// A sanitizer makes a seed ten times slower and covers the same code in each seed.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kNumSeeds = 1000;
#else
constexpr uint64_t kNumSeeds = 10000;
#endif

TEST_CASE("Simulation: the invariants hold whatever fails", "[simulation]") {
  for (uint64_t seed = 1; seed <= kNumSeeds; ++seed) CheckSeed(seed);
}

TEST_CASE("Simulation: a seed is one run", "[simulation]") {
  for (const uint64_t seed : {3, 14, 159}) {
    const RunResult once = RunSeed({.seed = seed});
    const RunResult again = RunSeed({.seed = seed});
    CHECK(once.trace_hash == again.trace_hash);
    CHECK(once.num_requests == again.num_requests);
    CHECK(once.trace_hash != RunSeed({.seed = seed + 1}).trace_hash);
  }
}

// Events that no client, operator or worker of the simulation sends.
const std::set<std::string> kNotSimulated = {"JoinSamplingSession",
                                             "PublishCheckpoint",
                                             "SetCheckpointTtl",
                                             "Drain",
                                             "SetQuota",
                                             "AdoptCheckpoint",
                                             "CopyCheckpoint",
                                             "AssignSessionProject",
                                             "BodyUnavailable"};

template <typename... Events>
std::set<std::string> NamesOf(const std::variant<Events...>&) {
  return {TypeName<Events>()...};
}

// The name of the event in a line of a trace, "0.000000 engine1 Loaded{…". Empty: an action.
std::string EventOf(const std::string& line) {
  std::istringstream words(line);
  std::string time, engine, event;
  words >> time >> engine >> event;
  return engine == "->" ? "" : event.substr(0, event.find('{'));
}

TEST_CASE("Simulation: some seed sends each event, or kNotSimulated names it", "[simulation]") {
  constexpr uint64_t kNumTraces = 400;
  constexpr size_t kMaxLines = 1'000'000;
  std::set<std::string> missing = NamesOf(EventBody());
  for (const std::string& name : kNotSimulated) CHECK(missing.erase(name) == 1);
  for (uint64_t seed = 1; seed <= kNumTraces && !missing.empty(); ++seed) {
    for (const std::string& line : RunSeed({.seed = seed, .max_trace_lines = kMaxLines}).trace) {
      const std::string event = EventOf(line);
      missing.erase(event);
      if (kNotSimulated.count(event) > 0)
        FAIL("kNotSimulated names " << event << ", seed " << seed);
    }
  }
  CHECK(missing == std::set<std::string>());
}

std::string OutputOf(const std::string& command) {
  std::string output;
  FILE* const pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::array<char, 256> buffer;
  while (std::fgets(buffer.data(), buffer.size(), pipe) != nullptr) output += buffer.data();
  CHECK(pclose(pipe) == 0);
  return output;
}

TEST_CASE("Simulation: a seed has the same trace in every process", "[simulation]") {
  for (const uint64_t seed : {26, 53, 589}) {
    const std::string command = absl::StrFormat("%s --seed %d", SIMULATION_BINARY, seed);
    const std::string output = OutputOf(command);
    CHECK(output.find(absl::StrFormat("hash=%016x", RunSeed({.seed = seed}).trace_hash)) !=
          std::string::npos);
    CHECK(output == OutputOf(command));
  }
}

}  // namespace
}  // namespace lathe::engine::simulation
