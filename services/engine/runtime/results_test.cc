#include "services/engine/runtime/results.h"

#include <catch2/catch.hpp>
#include <string>

namespace lathe::engine {
namespace {

TEST_CASE("Results: a hold becomes the result of its request once it is durable", "[runtime]") {
  Results results(1000);
  const std::string hold = results.Hold("bytes");
  CHECK(*results.Held(hold) == "bytes");
  CHECK(results.Recent("r1") == nullptr);
  results.Finish(hold, "r1");
  CHECK(results.Held(hold) == nullptr);
  CHECK(*results.Recent("r1") == "bytes");
}

TEST_CASE("Results: the first result of a request stays", "[runtime]") {
  Results results(1000);
  results.HoldAs("a", "first");
  results.HoldAs("b", "second");
  results.Finish("a", "r1");
  results.Finish("b", "r1");
  CHECK(*results.Recent("r1") == "first");
}

TEST_CASE("Results: the least recently used leave memory above the bound", "[runtime]") {
  Results results(2 * (Results::kEntryBytes + 10) + 5);
  for (const char* id : {"r1", "r2"}) {
    results.HoldAs(id, std::string(10, 'x'));
    results.Finish(id, id);
  }
  CHECK(results.Recent("r1") != nullptr);
  results.HoldAs("r3", std::string(10, 'x'));
  results.Finish("r3", "r3");
  CHECK(results.Recent("r1") != nullptr);
  CHECK(results.Recent("r2") == nullptr);
  CHECK(results.Recent("r3") != nullptr);
}

TEST_CASE("Results: dropped results make room", "[runtime]") {
  Results results(2 * (Results::kEntryBytes + 10) + 5);
  for (const char* id : {"r1", "r2"}) {
    results.HoldAs(id, std::string(10, 'x'));
    results.Finish(id, id);
  }
  results.Drop("r2");
  results.Drop("nobody's");
  results.HoldAs("r3", std::string(10, 'x'));
  results.Finish("r3", "r3");
  CHECK(results.Recent("r1") != nullptr);
  CHECK(results.Recent("r2") == nullptr);
}

TEST_CASE("Results: a forgotten hold never becomes a result", "[runtime]") {
  Results results(1000);
  const std::string hold = results.Hold("bytes");
  results.Forget(hold);
  results.Finish(hold, "r1");
  CHECK(results.Recent("r1") == nullptr);
}

}  // namespace
}  // namespace lathe::engine
