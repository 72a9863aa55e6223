#include "services/engine/series/point_batch.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

namespace lathe::engine {
namespace {

std::vector<PointEntryPtr> Entries() {
  PointEntry result{.run_id = "s:train:0",
                    .tenant_id = "t1",
                    .kind = EntryKind::kOptimStep,
                    .unix_ms = 5,
                    .points = {{.name = "grad_norm", .value = 1.5}}};
  PointEntry users{.run_id = "s:train:1",
                   .tenant_id = "t2",
                   .kind = EntryKind::kUsers,
                   .unix_ms = 6,
                   .points = {{.name = "reward", .value = -2, .step = 8, .unix_ms = 9}}};
  return {std::make_shared<PointEntry>(result), std::make_shared<PointEntry>(users)};
}

TEST_CASE("A batch is read as it was written", "[series]") {
  const auto read = UnpackBatch(PackBatch(Entries()));
  REQUIRE(read.ok());
  REQUIRE(read->size() == 2);
  const PointEntry& result = *(*read)[0];
  CHECK(result.run_id == "s:train:0");
  CHECK(result.tenant_id == "t1");
  CHECK(result.kind == EntryKind::kOptimStep);
  CHECK(result.unix_ms == 5);
  CHECK(result.points.at(0).name == "grad_norm");
  CHECK(result.points.at(0).value == 1.5);
  const PointEntry& users = *(*read)[1];
  CHECK(users.points.at(0).step == 8);
  CHECK(users.points.at(0).unix_ms == 9);
  CHECK(users.points.at(0).value == -2);
}

TEST_CASE("A batch that is cut is damaged, one of a later form is refused", "[series]") {
  const std::string bytes = PackBatch(Entries());
  for (size_t size = 1; size < bytes.size(); ++size) {
    CHECK(absl::IsDataLoss(UnpackBatch(bytes.substr(0, size)).status()));
  }
  CHECK(absl::IsFailedPrecondition(UnpackBatch("\x02" + bytes.substr(1)).status()));
}

}  // namespace
}  // namespace lathe::engine
