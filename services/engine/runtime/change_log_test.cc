#include "services/engine/runtime/change_log.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace lathe::engine {
namespace {

std::vector<PointEntryPtr> OnePoint(const std::string& run_id, const std::string& tenant_id) {
  return {std::make_shared<PointEntry>(PointEntry{
      .run_id = run_id, .tenant_id = tenant_id, .points = {{.name = "loss", .value = 1}}})};
}

Write ModelOf(const std::string& model_id, const std::string& tenant_id) {
  PutModel write;
  write.row.model_id = model_id;
  write.row.tenant_id = tenant_id;
  return write;
}

TEST_CASE("ChangeLog: a tenant that nobody follows costs nothing", "[runtime]") {
  ChangeLog log;
  log.OnWrite(ModelOf("m", "t"));
  log.OnPoints(1, OnePoint("m", "t"));
  const ChangeLog::Changes changes = log.Take();
  CHECK(changes.tenants.empty());
  CHECK(changes.batches.empty());
}

TEST_CASE("ChangeLog: a tenant's follower sees its own runs and checkpoints only", "[runtime]") {
  ChangeLog log;
  log.FollowTenant("t");
  log.OnWrite(ModelOf("created", "t"));
  log.OnWrite(ModelOf("foreign", "other"));
  log.OnPoints(1, OnePoint("stepped", "t"));
  // Numbers of the machine are no run's.
  log.OnPoints(1, OnePoint("machine:tenant/t", "t"));
  PutCheckpoint saved;
  saved.row.model_id = "saved";
  saved.row.tenant_id = "t";
  log.OnWrite(saved);
  const ChangeLog::Changes changes = log.Take();
  REQUIRE(changes.tenants.size() == 1);
  CHECK(changes.tenants.at("t").runs.run_ids == std::set<std::string>{"created", "stepped"});
  CHECK(changes.tenants.at("t").checkpoints.run_ids == std::set<std::string>{"saved"});
  CHECK(log.Take().tenants.empty());
}

TEST_CASE("ChangeLog: a followed run has its batches in order, until all have left", "[runtime]") {
  ChangeLog log;
  log.FollowRun("m");
  log.FollowRun("m");
  log.OnPoints(4, OnePoint("m", "t"));
  log.OnPoints(7, OnePoint("m", "t"));
  log.OnPoints(8, OnePoint("another", "t"));
  const ChangeLog::Changes changes = log.Take();
  REQUIRE(changes.batches.size() == 1);
  REQUIRE(changes.batches.at("m").size() == 2);
  CHECK(changes.batches.at("m")[0].journal_id == 4);
  CHECK(changes.batches.at("m")[1].journal_id == 7);
  log.LeaveRun("m");
  log.OnPoints(9, OnePoint("m", "t"));
  log.LeaveRun("m");
  log.OnPoints(10, OnePoint("m", "t"));
  CHECK(log.Take().batches.empty());
}

TEST_CASE("ChangeLog: only so many changed runs are named", "[runtime]") {
  ChangeLog log;
  log.FollowTenant("t");
  for (size_t i = 0; i <= ChangeLog::kMaxRuns; ++i) log.OnWrite(ModelOf(absl::StrCat(i), "t"));
  const ChangeLog::Changes changes = log.Take();
  CHECK(changes.tenants.at("t").runs.run_ids.size() == ChangeLog::kMaxRuns);
  CHECK(changes.tenants.at("t").runs.has_more);
}

}  // namespace
}  // namespace lathe::engine
