// lathe.v1.Groups against a whole engine.
#include <catch2/catch.hpp>
#include <limits>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "libs/common/errors.h"
#include "libs/common/time/clock.h"
#include "protos/lathe/v1/groups.grpc.pb.h"
#include "services/engine/rpc/testing/test_client.h"

namespace lathe::engine {
namespace {

struct GroupsFixture : Fixture {
  std::unique_ptr<v1::Groups::Stub> stub = v1::Groups::NewStub(engine.channel());
  const std::string key = engine.MakeKey("operators", {"operator"});

  template <typename Response, typename Request>
  absl::Status Call(grpc::Status (v1::Groups::Stub::*method)(grpc::ClientContext*, const Request&,
                                                             Response*),
                    const Request& request, Response* response) {
    return FromGrpcStatus((*stub.*method)(CallContext(key), request, response));
  }
  absl::Status List(const std::string& group, v1::ListGroupModelsResponse* response,
                    int64_t max_models = 0) {
    v1::ListGroupModelsRequest request;
    request.set_group(group);
    request.set_max_models(max_models);
    return Call(&v1::Groups::Stub::ListGroupModels, request, response);
  }
  absl::Status Move(const std::string& model_id, const std::string& group) {
    v1::MoveModelRequest request;
    request.set_model_id(model_id);
    request.set_group(group);
    v1::MoveModelResponse response;
    return Call(&v1::Groups::Stub::MoveModel, request, &response);
  }
  absl::Status Remove(const std::string& group) {
    v1::RemoveGroupRequest request;
    request.set_group(group);
    v1::RemoveGroupResponse response;
    return Call(&v1::Groups::Stub::RemoveGroup, request, &response);
  }
  // Returns "event object outcome" of a tenant's log about groups and models.
  std::vector<std::string> Audit(const std::string& tenant = "operators") {
    std::vector<std::string> log;
    const std::vector<AuditRow> rows = *engine.runtime().store().ListAudit(
        *engine.keys().TenantId(tenant), "", 0, std::numeric_limits<int64_t>::max(), 1000);
    for (const AuditRow& row : rows) {
      if (row.event.starts_with("key_") || row.event.starts_with("tenant_")) continue;
      CHECK(row.actor == engine.keys().Authenticate(key)->key_id);
      log.push_back(row.event + " " + row.object + " " + row.outcome);
    }
    return log;
  }
};

TEST_CASE("Groups: an operator sees the models of all tenants, the busiest first",
          "[engine][groups]") {
  GroupsFixture f;
  f.client.MakeModel();
  Client other(f.engine, f.engine.MakeKey("other"));
  other.MakeModel();
  f.worker.Detach();
  other.Train(1);
  v1::ListGroupModelsResponse listed;
  REQUIRE(f.List("g0", &listed).ok());
  CHECK(listed.num_models() == 2);
  CHECK(listed.pending_requests() == 1);
  CHECK(listed.drain_left().empty());
  REQUIRE(listed.models_size() == 2);
  CHECK(listed.models(0).model_id() == other.model_id());
  CHECK(listed.models(0).tenant() == "other");
  CHECK(listed.models(0).pending_requests() == 1);
  CHECK(listed.models(1).model_id() == f.client.model_id());
  listed.Clear();
  REQUIRE(f.List("g0", &listed, 1).ok());
  CHECK(listed.models_size() == 1);
  CHECK(listed.num_models() == 2);
}

TEST_CASE("Groups: wrong names and numbers are refused by name", "[engine][groups]") {
  GroupsFixture f;
  v1::ListGroupModelsResponse listed;
  const absl::Status absent = f.List("absent", &listed);
  CHECK(ErrorCode(absent) == "not_found");
  CHECK(ErrorField(absent) == "group");
  CHECK(ErrorField(f.List("g0", &listed, 1001)) == "max_models");
  CHECK(ErrorField(f.List("g0", &listed, -1)) == "max_models");
  CHECK(ErrorField(f.Move("absent:train:0", "g0")) == "model_id");
  CHECK(f.Audit().empty());
}

TEST_CASE("Groups: a group whose work no other one does stays in service", "[engine][groups]") {
  GroupsFixture f;
  v1::DrainGroupRequest drain;
  drain.set_group("g0");
  v1::DrainGroupResponse drained;
  const absl::Status status = f.Call(&v1::Groups::Stub::DrainGroup, drain, &drained);
  CHECK(ErrorCode(status) == "no_other_group");
  CHECK(f.Audit().empty());
  v1::ResumeGroupRequest resume;
  resume.set_group("g0");
  v1::ResumeGroupResponse resumed;
  CHECK(f.Call(&v1::Groups::Stub::ResumeGroup, resume, &resumed).ok());
  CHECK(f.Audit() == std::vector<std::string>{"group_resume g0 ok"});
}

TEST_CASE("Groups: a move is in the log of the model's tenant, a removal in the operator's",
          "[engine][groups]") {
  GroupsFixture f;
  f.client.MakeModel();
  REQUIRE(f.Move(f.client.model_id(), "g0").ok());
  CHECK(ErrorCode(f.Remove("g0")) == "group_has_worker");
  f.worker.Detach();
  absl::Status removed = f.Remove("g0");
  // The engine may not have noticed yet that the worker has left.
  const absl::Time deadline = SteadyNow() + absl::Seconds(60);
  while (ErrorCode(removed) == "group_has_worker" && SteadyNow() < deadline) {
    removed = f.Remove("g0");
  }
  INFO(removed);
  REQUIRE(removed.ok());
  CHECK(f.Audit("default") ==
        std::vector<std::string>{"model_move " + f.client.model_id() + " ok"});
  CHECK(f.Audit() == std::vector<std::string>{"group_take_model g0 ok", "group_remove g0 ok"});
  v1::ListGroupModelsResponse listed;
  CHECK(ErrorCode(f.List("g0", &listed)) == "not_found");
}

}  // namespace
}  // namespace lathe::engine
