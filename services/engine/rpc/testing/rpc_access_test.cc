// Checks the table of rpcs and scopes against the services, and against the engine's behaviour.
#include <google/protobuf/descriptor.h>
#include <grpcpp/generic/generic_stub.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "libs/common/errors.h"
#include "libs/common/rpc/channel.h"
#include "libs/common/rpc/status.h"
#include "services/engine/rpc/rpc_access.h"
#include "services/engine/rpc/testing/test_engine.h"

namespace lathe::engine {
namespace {

namespace pb = google::protobuf;

// Internal services, which have their own addresses.
const std::set<std::string> kInternalServices = {"lathe.v1.Admin", "lathe.v1.VersionSource",
                                                 "lathe.v1.WorkerPool"};

const RpcRule* FindRule(const std::string& rpc) {
  for (const RpcRule& rule : kRpcRules) {
    if (rule.rpc == rpc) return &rule;
  }
  return nullptr;
}

// Returns every method of a public service of protos/lathe/v1.
std::vector<const pb::MethodDescriptor*> PublicMethods() {
  std::vector<const pb::MethodDescriptor*> methods;
  for (const auto& entry : std::filesystem::directory_iterator(LATHE_PROTO_DIR)) {
    if (entry.path().extension() != ".proto") continue;
    const pb::FileDescriptor* const file = pb::DescriptorPool::generated_pool()->FindFileByName(
        absl::StrCat("protos/lathe/v1/", entry.path().filename().string()));
    INFO(entry.path());
    REQUIRE(file != nullptr);
    for (int i = 0; i < file->service_count(); ++i) {
      const pb::ServiceDescriptor* const service = file->service(i);
      if (kInternalServices.count(service->full_name()) > 0) continue;
      for (int j = 0; j < service->method_count(); ++j) methods.push_back(service->method(j));
    }
  }
  return methods;
}

std::string RpcName(const pb::MethodDescriptor& method) {
  return absl::StrCat(method.service()->name(), ".", method.name());
}

// Calls `method` with an empty message.
absl::Status CallEmpty(grpc::GenericStub& stub, const pb::MethodDescriptor& method,
                       const std::string& key) {
  CallContext context(key);
  grpc::CompletionQueue queue;
  grpc::ByteBuffer request;
  {
    const grpc::Slice empty;
    request = grpc::ByteBuffer(&empty, 1);
  }
  const auto call = stub.PrepareUnaryCall(
      context, absl::StrCat("/", method.service()->full_name(), "/", method.name()), request,
      &queue);
  call->StartCall();
  grpc::ByteBuffer response;
  grpc::Status status;
  call->Finish(&response, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  return FromGrpcStatus(status);
}

TEST_CASE("RpcAccess: every rpc of a public service has a rule, and every rule an rpc",
          "[engine][auth]") {
  std::set<std::string> names;
  for (const pb::MethodDescriptor* method : PublicMethods()) {
    INFO(RpcName(*method));
    CHECK(FindRule(RpcName(*method)) != nullptr);
    CHECK(names.insert(RpcName(*method)).second);
  }
  for (const RpcRule& rule : kRpcRules) {
    INFO(rule.rpc);
    CHECK(names.count(std::string(rule.rpc)) == 1);
  }
}

TEST_CASE("RpcAccess: each scope opens the rpcs of its rules and no others", "[engine][auth]") {
  TestEngine engine;
  grpc::GenericStub stub(MakeChannel(engine.address()));
  for (const auto& [word, scope] :
       std::vector<std::pair<std::string, Scope>>{{"train", Scope::kTrain},
                                                  {"sample", Scope::kSample},
                                                  {"read", Scope::kRead},
                                                  {"checkpoints:write", Scope::kCheckpointsWrite},
                                                  {"admin", Scope::kAdmin},
                                                  {"operator", Scope::kOperator}}) {
    for (const pb::MethodDescriptor* method : PublicMethods()) {
      const RpcRule* const rule = FindRule(RpcName(*method));
      if (rule == nullptr || rule->is_open) continue;
      // Each call needs a new key, because one of the rpcs revokes its caller's key.
      const std::string key = engine.MakeKey("default", {word});
      const absl::Status status = CallEmpty(stub, *method, key);
      INFO(word << " " << RpcName(*method) << " " << status);
      const bool may = Scopes(scope).HasAny(rule->scopes);
      CHECK((ErrorCode(status) == "missing_scope") == !may);
      CHECK(absl::IsPermissionDenied(status) == !may);
      CHECK_FALSE(absl::IsUnauthenticated(status));
    }
  }
}

TEST_CASE("RpcAccess: without a valid key every rpc but the open ones is unauthenticated",
          "[engine][auth]") {
  TestEngine engine;
  grpc::GenericStub stub(MakeChannel(engine.address()));
  for (const pb::MethodDescriptor* method : PublicMethods()) {
    const RpcRule* const rule = FindRule(RpcName(*method));
    if (rule == nullptr || rule->is_open) continue;
    INFO(RpcName(*method));
    CHECK(absl::IsUnauthenticated(CallEmpty(stub, *method, "")));
    CHECK(absl::IsUnauthenticated(CallEmpty(stub, *method, "tml-nonsense")));
  }
}

}  // namespace
}  // namespace lathe::engine
