// Accounts.GetServiceStatus against a whole engine.
#include <catch2/catch.hpp>
#include <string>

#include "libs/common/errors.h"
#include "libs/common/version.h"
#include "services/engine/rpc/testing/test_client.h"

namespace lathe::engine {
namespace {

struct StatusFixture : Fixture {
  absl::Status Get(const std::string& key, v1::GetServiceStatusResponse* response,
                   int64_t max_models = 0) {
    v1::GetServiceStatusRequest request;
    request.set_max_models(max_models);
    return FromGrpcStatus(engine.accounts().GetServiceStatus(CallContext(key), request, response));
  }
  // From now on, requests stay unfinished.
  void Leave() { worker.Detach(); }
  v1::GetServiceStatusResponse Of(const std::string& key) {
    v1::GetServiceStatusResponse response;
    REQUIRE(Get(key, &response).ok());
    return response;
  }
};

// A request may be sent before the engine notices that the worker has left.
int64_t Sum(const v1::OperationQueue& queue) { return queue.waiting() + queue.running(); }

TEST_CASE("Service status: a tenant sees its models and what waits", "[engine][accounts]") {
  StatusFixture f;
  f.client.MakeModel();
  CHECK(f.Of(f.client.key()).all_queues().empty());
  REQUIRE(f.Of(f.client.key()).groups_size() == 1);
  CHECK(f.Of(f.client.key()).groups(0).state() == "ready");
  f.Leave();
  f.client.Train(1);
  const v1::GetServiceStatusResponse status = f.Of(f.client.key());
  CHECK(status.version() == std::string(kVersion));
  CHECK(status.refusal().empty());
  REQUIRE(status.own_queues_size() == 1);
  CHECK(status.own_queues(0).operation() == "forward_backward");
  CHECK(Sum(status.own_queues(0)) == 1);
  CHECK(status.num_models() == 1);
  REQUIRE(status.models_size() == 1);
  CHECK(status.models(0).model_id() == f.client.model_id());
  CHECK(status.models(0).state() == "ready");
  CHECK(status.models(0).pending_requests() == 1);
  REQUIRE(status.groups_size() == 1);
  CHECK(status.groups(0).base_model() == "tiny");
}

TEST_CASE("Service status: another tenant sees sums and nothing else", "[engine][accounts]") {
  StatusFixture f;
  f.client.MakeModel();
  f.Leave();
  f.client.Train(1);
  const v1::GetServiceStatusResponse status = f.Of(f.engine.MakeKey("other", {"admin"}));
  REQUIRE(status.all_queues_size() == 1);
  CHECK(Sum(status.all_queues(0)) == 1);
  CHECK(status.own_queues().empty());
  CHECK(status.num_models() == 0);
  CHECK(status.models().empty());
  CHECK(status.ShortDebugString().find(f.client.session_id()) == std::string::npos);
}

TEST_CASE("Service status: ranks need the scope admin", "[engine][accounts]") {
  StatusFixture f;
  CHECK(f.Of(f.engine.MakeKey("reader", {"read"})).groups(0).ranks().empty());
  const v1::GroupState group = f.Of(f.engine.MakeKey("reader", {"admin"})).groups(0);
  REQUIRE(group.ranks_size() == 1);
  CHECK(group.ranks(0).rank() == 0);
}

TEST_CASE("Service status: the number of models is bounded", "[engine][accounts]") {
  StatusFixture f;
  f.client.MakeModel();
  std::string id;
  REQUIRE(f.client.CreateModel(&id, /*model_seq_id=*/1).ok());
  f.client.Result(id);
  f.Leave();
  f.client.Train(1);
  v1::GetServiceStatusResponse status;
  REQUIRE(f.Get(f.client.key(), &status, 1).ok());
  CHECK(status.num_models() == 2);
  REQUIRE(status.models_size() == 1);
  // The one with the most unfinished requests.
  CHECK(status.models(0).model_id() == f.client.model_id());
  REQUIRE(f.Get(f.client.key(), &status, 2).ok());
  REQUIRE(status.models_size() == 2);
  CHECK(status.models(0).pending_requests() == 1);
  CHECK(status.models(1).model_id() != f.client.model_id());
  CHECK(status.models(1).pending_requests() == 0);
  for (const int64_t bad : {-1, 1001}) {
    CHECK(ErrorCode(f.Get(f.client.key(), &status, bad)) == "invalid_field");
  }
}

}  // namespace
}  // namespace lathe::engine
