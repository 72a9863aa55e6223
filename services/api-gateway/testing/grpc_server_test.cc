// Tests the gateway's gRPC listener over real sockets, in front of a fake engine.
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "libs/common/errors.h"
#include "libs/common/rpc/cluster_secret.h"
#include "libs/common/rpc/status.h"
#include "protos/lathe/v1/admin.grpc.pb.h"
#include "services/api-gateway/testing/fake_engine.h"
#include "services/api-gateway/testing/running_gateway.h"

namespace lathe::gateway {
namespace {

// Fixture: a gateway with gRPC, and a client of it.
struct Service {
  FakeEngine engine;
  RunningGateway gateway;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::Engine::Stub> stub;

  explicit Service(GatewayOptions options = {}) : gateway(engine, std::move(options)) {
    channel = grpc::CreateChannel(absl::StrCat("127.0.0.1:", gateway.ListenGrpc()),
                                  grpc::InsecureChannelCredentials());
    stub = v1::Engine::NewStub(channel);
  }

  struct Context : grpc::ClientContext {
    explicit Context(const char* key = FakeEngine::kFakeKey) {
      if (*key != '\0') AddMetadata("x-api-key", key);
      SetDeadline(*this, absl::Seconds(20));
    }
  };

  grpc::Status ForwardBackward(Context& context, const v1::ForwardBackwardRequest& request) {
    v1::SubmitResponse response;
    return stub->ForwardBackward(&context, request, &response);
  }
  grpc::Status ForwardBackward(const v1::ForwardBackwardRequest& request) {
    Context context;
    return ForwardBackward(context, request);
  }
};

// A request whose message has about `bytes`.
v1::ForwardBackwardRequest RequestOf(size_t bytes) {
  v1::ForwardBackwardRequest request;
  request.set_model_id(std::string(bytes, 'm'));
  return request;
}

std::string WordOf(const grpc::Status& status) { return ErrorCode(FromGrpcStatus(status)); }

TEST_CASE("A gateway proves itself with every call, in place of its clients", "[grpc]") {
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / absl::StrCat("lathe-secret-", getpid());
  std::ofstream(file) << "s3cret\n";
  Service f({.secret_file = file.string()});
  REQUIRE(f.engine.AwaitCalls("Watch", 1));
  Service::Context context;
  context.AddMetadata(kGatewaySecretHeader, "forged");
  CHECK(f.ForwardBackward(context, RequestOf(10)).ok());
  CHECK(f.engine.num_calls("Authenticate") == 1);
  CHECK(f.engine.gateway_secrets() == std::set<std::string>{"s3cret"});
  std::filesystem::remove(file);
}

TEST_CASE("A gateway forwards calls, answers and errors with their details", "[grpc]") {
  Service f;
  Service::Context context;
  v1::GetCapabilitiesResponse capabilities;
  REQUIRE(f.stub->GetCapabilities(&context, {}, &capabilities).ok());
  CHECK(capabilities.models(0).name() == "tiny");
  CHECK(f.ForwardBackward(RequestOf(3'000'000)).ok());
  CHECK(f.engine.last_forward_backward().model_id().size() == 3'000'000);

  Service::Context bad;
  v1::OptimStepRequest request;
  request.mutable_adam_params()->set_learning_rate(-1);
  v1::SubmitResponse response;
  const absl::Status status = FromGrpcStatus(f.stub->OptimStep(&bad, request, &response));
  CHECK(absl::IsInvalidArgument(status));
  CHECK(ErrorCode(status) == "bad_optimizer");
  CHECK(ErrorField(status) == "adam_params.learning_rate");
}

TEST_CASE("A call without a good key reaches no engine", "[grpc]") {
  Service f;
  for (const char* key : {"", "wrong"}) {
    Service::Context context(key);
    CHECK(f.ForwardBackward(context, RequestOf(10)).error_code() ==
          grpc::StatusCode::UNAUTHENTICATED);
  }
  CHECK(f.engine.num_calls("ForwardBackward") == 0);
}

TEST_CASE("Wrong keys of one address are checked slowly", "[grpc]") {
  GatewayOptions options;
  options.limits.max_failed_keys_per_minute = 3;
  Service f(options);
  CHECK(f.ForwardBackward(RequestOf(10)).ok());  // from now on, this key is known
  std::vector<std::string> words;
  for (int i = 0; i < 8; ++i) {
    Service::Context context(absl::StrCat("tml-wrong-", i).c_str());
    words.push_back(WordOf(f.ForwardBackward(context, RequestOf(10))));
  }
  CHECK(words.front() == "unauthenticated");
  CHECK(words.back() == "too_many_attempts");
  CHECK(f.engine.num_calls("Authenticate") < 7);
  CHECK(f.ForwardBackward(RequestOf(10)).ok());
}

TEST_CASE("Only the public services are forwarded", "[grpc]") {
  Service f;
  const auto admin = v1::Admin::NewStub(f.channel);
  Service::Context context;
  v1::ListKeysResponse keys;
  CHECK(admin->ListKeys(&context, {}, &keys).error_code() == grpc::StatusCode::UNIMPLEMENTED);
}

TEST_CASE("A message is bounded before the engine sees it", "[grpc]") {
  GatewayOptions options;
  options.limits.max_inflated_bytes = 4 << 20;
  Service f(options);
  CHECK(f.ForwardBackward(RequestOf(5 << 20)).error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);

  v1::ForwardBackwardRequest many;
  for (int i = 0; i < 1'000'000; ++i) many.add_data();
  CHECK(WordOf(f.ForwardBackward(many)) == "too_many_parts");

  Service::Context context;
  context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  CHECK(f.ForwardBackward(context, RequestOf(1 << 20)).error_code() ==
        grpc::StatusCode::UNIMPLEMENTED);
  CHECK(f.engine.num_calls("ForwardBackward") == 0);
}

TEST_CASE("A message needs room in the budget of bytes in flight", "[grpc]") {
  GatewayOptions options;
  options.limits.max_inflight_bytes = 6 << 20;
  Service f(options);
  CHECK(WordOf(f.ForwardBackward(RequestOf(3 << 20))) == "body_too_large");
  CHECK(f.ForwardBackward(RequestOf(500'000)).ok());
}

TEST_CASE("The open calls of a key are bounded", "[grpc]") {
  GatewayOptions options;
  options.limits.max_polls_per_key = 1;
  Service f(options);
  {
    Service::Context context;
    const auto watch = f.stub->Watch(&context);
    REQUIRE(watch->Write(v1::WatchRequest()));
    v1::WatchResponse response;
    REQUIRE(watch->Read(&response));
    CHECK(WordOf(f.ForwardBackward(RequestOf(10))) == "too_many_calls");
    REQUIRE(watch->WritesDone());
    CHECK(watch->Finish().ok());
  }
  // The client has the status before the gateway has forgotten the call.
  grpc::Status status;
  for (int i = 0; i < 1000 && WordOf(status = f.ForwardBackward(RequestOf(10))) == "too_many_calls";
       ++i) {
    absl::SleepFor(absl::Milliseconds(1));
  }
  CHECK(status.ok());
}

TEST_CASE("A client that cancels ends the engine's call", "[grpc]") {
  Service f;
  Service::Context context;
  v1::AwaitSamplesRequest request;
  request.set_wait_ms(15'000);
  absl::Notification ended;
  v1::AwaitSamplesResponse response;
  f.stub->async()->AwaitSamples(&context, &request, &response,
                                [&](grpc::Status) { ended.Notify(); });
  REQUIRE(f.engine.AwaitCalls("AwaitSamples", 1));
  context.TryCancel();
  ended.WaitForNotification();
  CHECK(f.engine.AwaitCalls("AwaitSamplesCancelled", 1));
}

// Asks for the result of the request. `acknowledges`: the client says itself when it has it.
grpc::Status GetResult(Service& f, const std::string& request_id, bool acknowledges,
                       v1::GetResultResponse* response) {
  Service::Context context;
  v1::GetResultRequest request;
  request.set_request_id(request_id);
  request.set_acknowledges(acknowledges);
  return f.stub->GetResult(&context, request, response);
}

TEST_CASE("A result counts as delivered once it was written to its client", "[grpc]") {
  Service f;
  REQUIRE(f.engine.AwaitCalls("Watch", 1));
  Service::Context context;
  v1::SubmitResponse submitted;
  REQUIRE(f.stub->ForwardBackward(&context, RequestOf(10), &submitted).ok());
  v1::GetResultResponse response;
  REQUIRE(GetResult(f, submitted.request_id(), false, &response).ok());
  CHECK_FALSE(response.has_result());  // the first to be acknowledged has one

  v1::OperationResult result;
  result.mutable_optim_step();
  f.engine.Settle(submitted.request_id(), result);
  REQUIRE(GetResult(f, submitted.request_id(), true, &response).ok());
  CHECK(f.engine.last_get_result().acknowledges());
  CHECK_FALSE(GetResult(f, "absent", false, &response).ok());

  REQUIRE(GetResult(f, submitted.request_id(), false, &response).ok());
  CHECK(response.has_result());
  CHECK(f.engine.last_get_result().acknowledges());
  REQUIRE(f.engine.AwaitCalls("WatchDelivered", 1));
  // Another one would have been told before the next.
  REQUIRE(GetResult(f, submitted.request_id(), false, &response).ok());
  REQUIRE(f.engine.AwaitCalls("WatchDelivered", 2));
  CHECK(f.engine.num_calls("WatchDelivered") == 2);
}

TEST_CASE("A result is not delivered to a client that leaves before it has read it", "[grpc]") {
  Service f;
  REQUIRE(f.engine.AwaitCalls("Watch", 1));
  Service::Context submit;
  v1::SubmitResponse submitted;
  REQUIRE(f.stub->ForwardBackward(&submit, RequestOf(10), &submitted).ok());
  v1::OperationResult large;  // more than gRPC takes for a client that does not read
  large.mutable_error()->set_message(std::string(8 << 20, 'x'));
  f.engine.Settle(submitted.request_id(), large);

  v1::GetResultRequest request;
  request.set_request_id(submitted.request_id());
  const grpc::Slice slice(request.SerializeAsString());
  {
    grpc::CompletionQueue queue;
    Service::Context context;
    grpc::GenericStub generic(f.channel);
    const auto call = generic.PrepareCall(&context, "/lathe.v1.Engine/GetResult", &queue);
    call->StartCall(nullptr);
    void* tag = nullptr;
    bool ok = false;
    REQUIRE(queue.Next(&tag, &ok));
    call->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), nullptr);
    REQUIRE(queue.Next(&tag, &ok));
    REQUIRE(f.engine.AwaitCalls("GetResult", 1));
    absl::SleepFor(absl::Milliseconds(200));  // the gateway begins to write meanwhile
    context.TryCancel();
    grpc::Status status;
    call->Finish(&status, nullptr);
    REQUIRE(queue.Next(&tag, &ok));
    CHECK(status.error_code() == grpc::StatusCode::CANCELLED);
  }
  // Later deliveries are told after an earlier one.
  f.engine.Settle(submitted.request_id(), v1::OperationResult());
  v1::GetResultResponse response;
  for (int i = 1; i <= 2; ++i) {
    REQUIRE(GetResult(f, submitted.request_id(), false, &response).ok());
    REQUIRE(f.engine.AwaitCalls("WatchDelivered", i));
  }
  CHECK(f.engine.num_calls("WatchDelivered") == 2);
}

TEST_CASE("A stop ends calls that still wait", "[grpc]") {
  GatewayOptions options;
  options.drain_timeout = absl::Milliseconds(50);
  Service f(options);
  Service::Context context;
  const auto watch = f.stub->Watch(&context);
  REQUIRE(watch->Write(v1::WatchRequest()));
  v1::WatchResponse response;
  REQUIRE(watch->Read(&response));
  f.gateway.Stop();
  CHECK_FALSE(watch->Read(&response));
  CHECK_FALSE(watch->Finish().ok());
}

}  // namespace
}  // namespace lathe::gateway
