// Traces of sessions, through the engine's sockets.
#include <catch2/catch.hpp>
#include <string>

#include "libs/common/errors.h"
#include "libs/common/rpc/status.h"
#include "services/engine/rpc/testing/test_client.h"

namespace lathe::engine {
namespace {

struct Traced : Fixture {
  std::unique_ptr<v1::Traces::Stub> stub = v1::Traces::NewStub(engine.channel());

  std::string Token() {
    v1::DescribeTraceRequest request;
    request.set_session_id(client.session_id());
    v1::DescribeTraceResponse response;
    REQUIRE(stub->DescribeTrace(CallContext(client.key()), request, &response).ok());
    CHECK(response.expires_at().seconds() ==
          absl::ToUnixSeconds(engine.clock().Now() + absl::Hours(1)));
    return response.token();
  }
  absl::Status Open(const std::string& token, v1::OpenTraceResponse* response) {
    v1::OpenTraceRequest request;
    request.set_token(token);
    return FromGrpcStatus(stub->OpenTrace(CallContext(""), request, response));
  }
};

TEST_CASE("Traces: a link shows what became of the session's requests, without a key", "[engine]") {
  Traced f;
  f.client.MakeModel();
  v1::ForwardBackwardRequest wrong = f.client.TrainRequest(1);
  wrong.mutable_loss()->set_name("no such loss");
  const std::string first = f.client.Accept(&v1::Engine::Stub::ForwardBackward, wrong);
  const std::string second = f.client.Train(2);
  f.client.Result(first);
  f.client.Result(second);
  v1::OpenTraceResponse trace;
  REQUIRE(f.Open(f.Token(), &trace).ok());
  CHECK(trace.session_id() == f.client.session_id());
  CHECK_FALSE(trace.has_complete_since());
  REQUIRE(trace.spans_size() == 3);
  CHECK(trace.spans(0).operation() == "create_model");
  CHECK(trace.spans(0).owner_id() == f.client.session_id());
  CHECK(trace.spans(1).outcome() == "user_error");
  CHECK(trace.spans(1).num_dispatches() == 0);
  const v1::RequestSpan& ran = trace.spans(2);
  CHECK(ran.request_id() == second);
  CHECK(ran.owner_id() == f.client.model_id());
  CHECK(ran.seq_id() == 2);
  CHECK(ran.outcome() == "ok");
  CHECK(ran.num_dispatches() == 1);
  CHECK(ran.num_batch_requests() == 1);
  CHECK(ran.executed_unix_nanos() > 0);
  CHECK(ran.completed_unix_nanos() > 0);
}

TEST_CASE("Traces: a run's newest requests", "[engine]") {
  Traced f;
  f.client.MakeModel();
  f.engine.clock().Advance(absl::Seconds(1));
  const std::string first = f.client.Train(1);
  const std::string second = f.client.Train(2);
  f.client.Result(first);
  f.client.Result(second);
  v1::ListRunRequestsRequest request;
  request.set_training_run_id(f.client.model_id());
  request.set_limit(1);
  const auto list = [&](v1::ListRunRequestsResponse* response) {
    return FromGrpcStatus(f.stub->ListRunRequests(CallContext(f.client.key()), request, response));
  };
  v1::ListRunRequestsResponse response;
  REQUIRE(list(&response).ok());
  REQUIRE(response.requests_size() == 1);
  CHECK(response.requests(0).request_id() == second);
  CHECK(response.has_complete_since());
  request.set_limit(10);
  REQUIRE(list(&response).ok());
  REQUIRE(response.requests_size() == 2);
  CHECK(response.requests(1).request_id() == first);
  CHECK_FALSE(response.has_complete_since());
  request.set_limit(100'000);
  CHECK(ErrorCode(list(&response)) == "bad_page");
  request.set_limit(10);
  request.set_training_run_id(f.client.session_id() + ":train:7");
  CHECK(ErrorCode(list(&response)) == "not_found");
}

TEST_CASE("Traces: a link ends after an hour, and only its own token opens it", "[engine]") {
  Traced f;
  const std::string token = f.Token();
  v1::OpenTraceResponse trace;
  CHECK(f.Open(token, &trace).ok());
  CHECK(ErrorCode(f.Open(token.substr(1), &trace)) == "bad_token");
  f.engine.clock().Advance(absl::Hours(1));
  CHECK(ErrorCode(f.Open(token, &trace)) == "link_expired");
}

TEST_CASE("Traces: after a restart the trace says that it begins there", "[engine]") {
  Traced f;
  const std::string token = f.Token();
  f.engine.clock().Advance(absl::Seconds(10));
  f.engine.Restart();
  f.stub = v1::Traces::NewStub(f.engine.channel());
  v1::OpenTraceResponse trace;
  REQUIRE(f.Open(token, &trace).ok());
  CHECK(trace.spans_size() == 0);
  CHECK(trace.complete_since().seconds() == absl::ToUnixSeconds(f.engine.clock().Now()));
}

}  // namespace
}  // namespace lathe::engine
