#include "libs/common/rpc/channel.h"

#include <grpcpp/server.h>
#include <grpcpp/support/server_callback.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "absl/status/statusor.h"
#include "libs/common/errors.h"
#include "libs/common/rpc/server.h"
#include "libs/common/rpc/status.h"
#include "protos/lathe/v1/admin.grpc.pb.h"

namespace lathe {
namespace {

// Answers GetStatus with 8 MiB and RevokeKey with an error.
class FakeAdmin : public v1::Admin::Service {
 public:
  grpc::Status GetStatus(grpc::ServerContext*, const v1::GetStatusRequest*,
                         v1::GetStatusResponse* response) override {
    response->set_version(std::string(8 << 20, 'x'));
    return grpc::Status::OK;
  }
  grpc::Status RevokeKey(grpc::ServerContext*, const v1::RevokeKeyRequest* request,
                         v1::RevokeKeyResponse*) override {
    return ToGrpcStatus(
        WithDetail(absl::NotFoundError("no key " + request->key_id()), "unknown_key", "key_id"));
  }
};

std::unique_ptr<grpc::Server> Serve(FakeAdmin& admin, const std::string& address,
                                    int* port = nullptr) {
  grpc::ServerBuilder builder;
  ApplyServerDefaults(builder);
  AddListener(builder, address, port);
  builder.RegisterService(&admin);
  return builder.BuildAndStart();
}

absl::StatusOr<std::size_t> VersionLength(const std::string& address) {
  auto stub = v1::Admin::NewStub(MakeChannel(address));
  grpc::ClientContext context;
  SetDeadline(context, absl::Seconds(30));
  v1::GetStatusResponse response;
  const grpc::Status status = stub->GetStatus(&context, {}, &response);
  if (!status.ok()) return FromGrpcStatus(status);
  return response.version().size();
}

TEST_CASE("Messages over gRPC's default limit pass on TCP and unix sockets", "[rpc]") {
  FakeAdmin admin;
  char folder[] = "/tmp/lathe-rpc-XXXXXX";
  REQUIRE(mkdtemp(folder) != nullptr);
  const std::string socket = std::string("unix:") + folder + "/admin.sock";
  int port = 0;
  auto tcp = Serve(admin, "127.0.0.1:0", &port);
  auto local = Serve(admin, socket);
  CHECK(*VersionLength("127.0.0.1:" + std::to_string(port)) == 8u << 20);
  CHECK(*VersionLength(socket) == 8u << 20);
  local->Shutdown();
  local = Serve(admin, socket);
  CHECK(*VersionLength(socket) == 8u << 20);
  local->Shutdown();
  std::filesystem::remove_all(folder);
}

TEST_CASE("An error of a service arrives with its word and field", "[rpc]") {
  FakeAdmin admin;
  int port = 0;
  auto server = Serve(admin, "127.0.0.1:0", &port);
  auto stub = v1::Admin::NewStub(MakeChannel("127.0.0.1:" + std::to_string(port)));
  grpc::ClientContext context;
  SetDeadline(context, absl::Seconds(30));
  v1::RevokeKeyRequest request;
  request.set_key_id("k1");
  v1::RevokeKeyResponse response;
  const absl::Status status = FromGrpcStatus(stub->RevokeKey(&context, request, &response));
  CHECK(status.message() == "no key k1");
  CHECK(ErrorCode(status) == "unknown_key");
  CHECK(ErrorField(status) == "key_id");
}

TEST_CASE("A port in use cannot be bound a second time", "[rpc]") {
  FakeAdmin admin;
  int port = 0;
  auto first = Serve(admin, "127.0.0.1:0", &port);
  REQUIRE(port > 0);
  FakeAdmin other;
  int second_port = -1;
  CHECK(Serve(other, "127.0.0.1:" + std::to_string(port), &second_port) == nullptr);
}

TEST_CASE("Who dials another machine without TLS is refused by name", "[rpc]") {
  const auto complaint = [](const ChannelTls& tls, const std::string& address, bool insecure) {
    return std::string(CheckChannelTls(tls, {"unix:/run/a.sock", address}, insecure).message());
  };
  CHECK(complaint({}, "127.0.0.1:7", false).empty());
  CHECK(complaint({}, "10.0.0.2:7", true).empty());
  CHECK(complaint({}, "10.0.0.2:7", false) ==
        "engine_ca is empty and engine '10.0.0.2:7' is another machine: traffic would be "
        "unencrypted; --insecure-i-know allows it");
  CHECK(complaint({.cert = "c"}, "127.0.0.1:7", false) ==
        "engine_ca is empty, a certificate of our own is given");
  CHECK(complaint({.ca = "/proc/self/status", .key = "k"}, "10.0.0.2:7", false) ==
        "engine_cert is missing: both or none");
  CHECK(complaint({.ca = "/none"}, "10.0.0.2:7", false) == "engine_ca '/none' cannot be read");
  CHECK(complaint({.ca = "/proc/self/status"}, "10.0.0.2:7", false).empty());
}

}  // namespace
}  // namespace lathe
