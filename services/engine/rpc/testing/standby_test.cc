// Checks that an engine that does not lead sends nothing but that fact.
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "libs/common/errors.h"
#include "libs/common/rpc/channel.h"
#include "libs/common/rpc/server.h"
#include "libs/common/rpc/status.h"
#include "protos/lathe/v1/engine.grpc.pb.h"
#include "protos/lathe/v1/worker.grpc.pb.h"
#include "services/engine/rpc/leader_guard.h"
#include "services/engine/rpc/servers.h"
#include "services/engine/store/testing/temp_dir.h"

namespace lathe::engine {
namespace {

// Responds to every Heartbeat, and to each message of a Watch stream with one message.
class FakeService final : public v1::Engine::CallbackService {
 public:
  grpc::ServerUnaryReactor* Heartbeat(grpc::CallbackServerContext* context,
                                      const v1::HeartbeatRequest*,
                                      v1::HeartbeatResponse*) override {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  grpc::ServerBidiReactor<v1::WatchRequest, v1::WatchResponse>* Watch(
      grpc::CallbackServerContext*) override {
    return new Echo;
  }

 private:
  class Echo final : public grpc::ServerBidiReactor<v1::WatchRequest, v1::WatchResponse> {
   public:
    Echo() { StartRead(&request_); }
    void OnReadDone(bool ok) override {
      if (!ok) return Finish(grpc::Status::OK);
      StartWrite(&response_);
    }
    void OnWriteDone(bool ok) override {
      if (!ok) return Finish(grpc::Status::OK);
      StartRead(&request_);
    }
    void OnDone() override { delete this; }

   private:
    v1::WatchRequest request_;
    v1::WatchResponse response_;
  };
};

struct StandbyFixture {
  StandbyFixture() {
    grpc::ServerBuilder builder;
    ApplyServerDefaults(builder);
    AddListener(builder, address);
    builder.RegisterService(&service);
    std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> guards;
    guards.push_back(MakeLeaderGuard([this] { return may_speak.load(); }));
    builder.experimental().SetInterceptorCreators(std::move(guards));
    server = builder.BuildAndStart();
    stub = v1::Engine::NewStub(MakeChannel(address));
  }

  absl::Status SendHeartbeat() {
    grpc::ClientContext context;
    SetDeadline(context, absl::Seconds(30));
    v1::HeartbeatResponse response;
    return FromGrpcStatus(stub->Heartbeat(&context, {}, &response));
  }

  TempDir dir;
  const std::string address = "unix:" + dir.path().string() + "/engine.sock";
  FakeService service;
  std::atomic<bool> may_speak = true;
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<v1::Engine::Stub> stub;
};

TEST_CASE("Leader guard: an answer that comes after the lease is none", "[rpc]") {
  StandbyFixture f;
  CHECK(f.SendHeartbeat().ok());
  f.may_speak = false;
  const absl::Status status = f.SendHeartbeat();
  CHECK(status.code() == absl::StatusCode::kUnavailable);
  CHECK(ErrorCode(status) == "not_leader");
  f.may_speak = true;
  CHECK(f.SendHeartbeat().ok());
}

TEST_CASE("Leader guard: a stream ends before its next message", "[rpc]") {
  StandbyFixture f;
  grpc::ClientContext context;
  SetDeadline(context, absl::Seconds(30));
  const auto stream = f.stub->Watch(&context);
  v1::WatchResponse response;
  REQUIRE(stream->Write({}));
  REQUIRE(stream->Read(&response));
  f.may_speak = false;
  REQUIRE(stream->Write({}));
  CHECK_FALSE(stream->Read(&response));
  CHECK_FALSE(stream->Finish().ok());
}

TEST_CASE("Standby: every call of every service is refused and names the leader", "[rpc]") {
  TempDir dir;
  const auto standby = StandbyServers::Start({.run_dir = dir.path().string()},
                                             [] { return "process 7 on h at unix:/x"; });
  INFO(standby.status());
  REQUIRE(standby.ok());
  const std::string folder = "unix:" + dir.path().string();
  grpc::ClientContext call;
  SetDeadline(call, absl::Seconds(30));
  v1::HeartbeatResponse response;
  const auto engine = v1::Engine::NewStub(MakeChannel(folder + "/engine.sock"));
  const absl::Status status = FromGrpcStatus(engine->Heartbeat(&call, {}, &response));
  CHECK(ErrorCode(status) == "not_leader");
  CHECK_THAT(std::string(status.message()), Catch::Contains("process 7 on h at unix:/x"));

  grpc::ClientContext attach;
  SetDeadline(attach, absl::Seconds(30));
  const auto workers = v1::WorkerPool::NewStub(MakeChannel(folder + "/worker.sock"));
  const auto stream = workers->Attach(&attach);
  v1::EngineMessage message;
  CHECK_FALSE(stream->Read(&message));
  CHECK(ErrorCode(FromGrpcStatus(stream->Finish())) == "not_leader");
}

TEST_CASE("Standby: its addresses are free once it has gone", "[rpc]") {
  TempDir dir;
  for (int i = 0; i < 3; ++i) {
    const auto standby =
        StandbyServers::Start({.run_dir = dir.path().string()}, [] { return "none yet"; });
    INFO(standby.status());
    REQUIRE(standby.ok());
    grpc::ClientContext context;
    SetDeadline(context, absl::Seconds(30));
    v1::HeartbeatResponse response;
    const auto stub =
        v1::Engine::NewStub(MakeChannel("unix:" + dir.path().string() + "/engine.sock"));
    CHECK(ErrorCode(FromGrpcStatus(stub->Heartbeat(&context, {}, &response))) == "not_leader");
  }
}

}  // namespace
}  // namespace lathe::engine
