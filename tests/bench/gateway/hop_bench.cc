// Measures requests through the gateway, over sockets, and the same RPCs sent directly to the
// engine.
#include <benchmark/benchmark.h>
#include <grpcpp/client_context.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "libs/common/rpc/channel.h"
#include "services/api-gateway/testing/fake_engine.h"
#include "services/api-gateway/testing/http_client.h"
#include "services/api-gateway/testing/running_gateway.h"
#include "services/api-gateway/wire/wire.h"
#include "tests/bench/gateway/training_bodies.h"

namespace lathe::gateway {
namespace {

// One engine and one gateway, shared by all benchmarks so that their numbers are comparable.
struct Setup {
  FakeEngine engine;
  RunningGateway gateway{engine};
  std::unique_ptr<v1::Engine::Stub> stub = v1::Engine::NewStub(MakeChannel(engine.address()));
};

Setup& Shared() {
  static Setup setup;
  return setup;
}

void Require(bool is_true) {
  if (!is_true) std::abort();
}

// Times `call` in each iteration of `state` and reports percentiles.
template <typename Call>
void MeasureCalls(benchmark::State& state, Call call) {
  constexpr int kNumWarm = 20;
  for (int i = 0; i < kNumWarm; ++i) call();
  std::vector<double> seconds;
  for (auto _ : state) {
    const auto begin = std::chrono::steady_clock::now();
    call();
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    state.SetIterationTime(seconds.back());
  }
  std::sort(seconds.begin(), seconds.end());
  state.counters["p50_us"] = 1e6 * seconds[seconds.size() / 2];
  state.counters["p99_us"] = 1e6 * seconds[seconds.size() * 99 / 100];
}

std::string RequestText(const std::string& path, const std::string& type, const std::string& body) {
  return absl::StrCat(
      "POST ", path, " HTTP/1.1\r\nHost: localhost\r\nX-API-Key: ", FakeEngine::kFakeKey,
      "\r\nContent-Type: ", type, "\r\nContent-Length: ", body.size(), "\r\n\r\n", body);
}

void MeasureRequests(benchmark::State& state, const std::string& text) {
  HttpClient client(Shared().gateway.port());
  MeasureCalls(state, [&] {
    client.SendRaw(text);
    Require(client.Receive().status == 200);
  });
}

void BareRpc(benchmark::State& state) {
  v1::HeartbeatRequest request;
  request.set_session_id("s");
  MeasureCalls(state, [&] {
    grpc::ClientContext context;
    context.AddMetadata("x-api-key", FakeEngine::kFakeKey);
    v1::HeartbeatResponse response;
    Require(Shared().stub->Heartbeat(&context, request, &response).ok());
  });
}
BENCHMARK(BareRpc)->Unit(benchmark::kMicrosecond)->UseManualTime()->Iterations(4000);

// The RPC of BareRpc plus HTTP, key check and routing.
void RpcThroughGateway(benchmark::State& state) {
  MeasureRequests(
      state, RequestText("/api/v1/session_heartbeat", "application/json", R"({"session_id":"s"})"));
}
BENCHMARK(RpcThroughGateway)->Unit(benchmark::kMicrosecond)->UseManualTime()->Iterations(4000);

// HTTP only: no key check and no RPC.
void HealthOfGateway(benchmark::State& state) {
  HttpClient client(Shared().gateway.port());
  MeasureCalls(state, [&] {
    client.SendRaw("GET /api/v1/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    Require(client.Receive().status == 200);
  });
}
BENCHMARK(HealthOfGateway)->Unit(benchmark::kMicrosecond)->UseManualTime()->Iterations(4000);

void BareTrainingRpc(benchmark::State& state) {
  v1::ForwardBackwardRequest request;
  Require(ForwardBackwardFromWire(TrainingProtobuf({}), &request).ok());
  MeasureCalls(state, [&] {
    grpc::ClientContext context;
    context.AddMetadata("x-api-key", FakeEngine::kFakeKey);
    v1::SubmitResponse response;
    Require(Shared().stub->ForwardBackward(&context, request, &response).ok());
  });
}
BENCHMARK(BareTrainingRpc)->Unit(benchmark::kMillisecond)->UseManualTime()->Iterations(50);

void TrainingAsProtobuf(benchmark::State& state) {
  MeasureRequests(state, RequestText("/api/v1/forward_backward", "application/x-protobuf",
                                     TrainingProtobuf({})));
}
BENCHMARK(TrainingAsProtobuf)->Unit(benchmark::kMillisecond)->UseManualTime()->Iterations(50);

void TrainingAsJson(benchmark::State& state) {
  MeasureRequests(state,
                  RequestText("/api/v1/forward_backward", "application/json", TrainingJson({})));
}
BENCHMARK(TrainingAsJson)->Unit(benchmark::kMillisecond)->UseManualTime()->Iterations(50);

// Polls for a large result, which the gateway encodes.
void MeasureResult(benchmark::State& state, const std::string& accept) {
  v1::OperationResult result;
  *result.mutable_forward_backward() = LogprobsResult(600'000, 1063);
  Shared().engine.SetInlineResults(false);
  Shared().engine.Settle("large", result);
  HttpClient client(Shared().gateway.port());
  MeasureCalls(state, [&] {
    const HttpAnswer answer =
        client.Exchange("POST", "/api/v1/retrieve_future", R"({"request_id":"large"})",
                        {{"Content-Type", "application/json"}, {"Accept", accept}});
    Require(answer.status == 200 && answer.body.size() > 2'400'000);
  });
}

void LogprobsThroughGateway(benchmark::State& state) {
  MeasureResult(state, "application/x-protobuf");
}
BENCHMARK(LogprobsThroughGateway)->Unit(benchmark::kMillisecond)->UseManualTime()->Iterations(100);

// The RPC of LogprobsThroughGateway.
void BareLogprobsRpc(benchmark::State& state) {
  v1::OperationResult result;
  *result.mutable_forward_backward() = LogprobsResult(600'000, 1063);
  Shared().engine.Settle("large", result);
  v1::GetResultRequest request;
  request.set_request_id("large");
  MeasureCalls(state, [&] {
    grpc::ClientContext context;
    context.AddMetadata("x-api-key", FakeEngine::kFakeKey);
    v1::GetResultResponse response;
    Require(Shared().stub->GetResult(&context, request, &response).ok());
  });
}
BENCHMARK(BareLogprobsRpc)->Unit(benchmark::kMillisecond)->UseManualTime()->Iterations(100);

}  // namespace
}  // namespace lathe::gateway
