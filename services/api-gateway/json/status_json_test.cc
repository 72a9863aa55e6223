#include "services/api-gateway/json/status_json.h"

#include <catch2/catch.hpp>

namespace lathe::gateway {
namespace {

TEST_CASE("ServiceStatusToJson: an idle service without groups has empty lists", "[json]") {
  v1::GetServiceStatusResponse response;
  response.set_version("1.2");
  response.set_term(3);
  const Json json = ServiceStatusToJson(response);
  CHECK(json["version"] == "1.2");
  CHECK(json["term"] == 3);
  CHECK(json["refusal"].is_null());
  CHECK(json["queues"] == Json({{"all", Json::array()}, {"own", Json::array()}}));
  CHECK(json["models"] == Json::array());
  CHECK(json["groups"] == Json::array());
}

TEST_CASE("ServiceStatusToJson: queues and models have their counts and reasons", "[json]") {
  v1::GetServiceStatusResponse response;
  v1::OperationQueue& queue = *response.add_all_queues();
  queue.set_operation("sample");
  queue.set_waiting(5);
  queue.set_running(2);
  response.set_num_models(7);
  v1::QueuedModel& model = *response.add_models();
  model.set_model_id("s:train:0");
  model.set_state("ready");
  model.set_applied_seq(4);
  model.set_pending_requests(2);
  model.set_reason("its group is draining");
  const Json json = ServiceStatusToJson(response);
  CHECK(json["queues"]["all"][0] ==
        Json({{"operation", "sample"}, {"waiting", 5}, {"running", 2}}));
  CHECK(json["num_models"] == 7);
  CHECK(json["models"][0]["training_run_id"] == "s:train:0");
  CHECK(json["models"][0]["pending"] == 2);
  CHECK(json["models"][0]["reason"] == "its group is draining");
  CHECK(json["models"][0]["group"].is_null());
}

TEST_CASE("ServiceStatusToJson: a group has ranks only if the engine names them", "[json]") {
  v1::GetServiceStatusResponse response;
  v1::GroupState& group = *response.add_groups();
  group.set_group("default");
  group.set_state("ready");
  group.set_num_ranks(1);
  CHECK_FALSE(ServiceStatusToJson(response)["groups"][0].contains("ranks"));
  v1::RankState& rank = *group.add_ranks();
  rank.set_device("cpu");
  CHECK(ServiceStatusToJson(response)["groups"][0]["ranks"][0]["memory"].is_null());
  rank.mutable_memory()->set_used_bytes(10);
  v1::MemoryShare& share = *rank.mutable_memory()->add_shares();
  share.set_owner("base");
  share.set_used_bytes(9);
  const Json memory = ServiceStatusToJson(response)["groups"][0]["ranks"][0]["memory"];
  CHECK(memory["used_bytes"] == 10);
  CHECK(memory["shares"][0]["owner"] == "base");
  CHECK(memory["shares"][0]["used_bytes"] == 9);
}

TEST_CASE("GroupModelsToJson: a model has its tenant and what it waits for", "[json]") {
  v1::ListGroupModelsResponse response;
  CHECK(GroupModelsToJson(response)["drain_left"].is_null());
  response.set_num_models(7);
  response.set_pending_requests(3);
  response.set_drain_left("2 models");
  v1::ModelStatus& model = *response.add_models();
  model.set_model_id("s:train:0");
  model.set_tenant("lab");
  model.set_unsaved(true);
  model.set_move_to("b");
  const Json json = GroupModelsToJson(response);
  CHECK(json["num_models"] == 7);
  CHECK(json["pending"] == 3);
  CHECK(json["drain_left"] == "2 models");
  CHECK(json["models"][0]["training_run_id"] == "s:train:0");
  CHECK(json["models"][0]["tenant"] == "lab");
  CHECK(json["models"][0]["unsaved"] == true);
  CHECK(json["models"][0]["move_to"] == "b");
  CHECK(json["models"][0]["reason"].is_null());
}

}  // namespace
}  // namespace lathe::gateway
