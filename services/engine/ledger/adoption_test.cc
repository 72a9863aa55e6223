#include "services/engine/ledger/adoption.h"

#include <catch2/catch.hpp>
#include <string>

namespace lathe::engine {
namespace {

struct Row {
  std::string what;
  LedgerModel ledger;
  WorkerModel worker;
  Adoption expected;
};

TEST_CASE("CompareForAdoption: a worker may be ahead by open work and never behind", "[ledger]") {
  const Row row = GENERATE(values<Row>({
      {"equal and empty", {0, 0, {}, {}, {}}, {0, {}}, Adoption::kMatches},
      {"equal with a window", {3, 3, {4, 5}, {}, {}}, {3, {4, 5}}, Adoption::kMatches},
      {"ahead by an open gradient", {3, 3, {4}, {5, 6}, {}}, {3, {4, 6}}, Adoption::kMatches},
      {"ahead by an open step", {3, 3, {4, 5}, {}, 6}, {6, {}}, Adoption::kMatches},
      {"open step not run yet", {3, 3, {4, 5}, {}, 6}, {3, {4, 5}}, Adoption::kMatches},
      {"a cleared gradient is still there",
       {3, 6, {}, {}, {}},
       {3, {4}},
       Adoption::kMatchesAfterClear},
      {"behind by a gradient", {3, 3, {4, 5}, {}, {}}, {3, {4}}, Adoption::kLost},
      {"behind by a step", {6, 6, {}, {}, {}}, {3, {4, 5}}, Adoption::kLost},
      {"a step that was not requested", {3, 3, {4}, {}, {}}, {9, {}}, Adoption::kLost},
      {"a gradient that was not requested", {3, 3, {4}, {5}, {}}, {3, {4, 7}}, Adoption::kLost},
      {"open step done but a window behind it", {3, 3, {4}, {}, 5}, {5, {4}}, Adoption::kLost},
      {"process that started anew", {3, 3, {}, {}, {}}, {0, {}}, Adoption::kLost},
  }));
  INFO(row.what);
  CHECK(CompareForAdoption(row.ledger, row.worker) == row.expected);
}

}  // namespace
}  // namespace lathe::engine
