// Access to every rpc of every public service, by caller and owner of the object. The rpcs come
// from the service descriptors: one without a row here fails the test.
#include <google/protobuf/dynamic_message.h>
#include <google/protobuf/text_format.h>
#include <grpcpp/generic/generic_stub.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "libs/common/errors.h"
#include "libs/common/rpc/cluster_secret.h"
#include "protos/lathe/v1/accounts.grpc.pb.h"
#include "protos/lathe/v1/checkpoints.grpc.pb.h"
#include "protos/lathe/v1/events.grpc.pb.h"
#include "protos/lathe/v1/users.grpc.pb.h"
#include "services/engine/rpc/testing/authorization_rows.h"
#include "services/engine/rpc/testing/test_client.h"

namespace lathe::engine {
namespace {

using authorization::kAllScopes;
using authorization::kEveryScope;
using authorization::kOperator;
using authorization::Matrix;
using authorization::Row;
using authorization::TokenMatrix;

using google::protobuf::DescriptorPool;
using google::protobuf::MethodDescriptor;
using google::protobuf::ServiceDescriptor;

// Services of engine.sock and grpc_listen. Admin and WorkerPool have their own sockets: Admin's is
// limited to the service's user, WorkerPool's requires a secret in the first message.
constexpr const char* kPublicServices[] = {
    "lathe.v1.Engine",   "lathe.v1.Tenants", "lathe.v1.Streaming", "lathe.v1.Checkpoints",
    "lathe.v1.Accounts", "lathe.v1.Traces",  "lathe.v1.Metrics",   "lathe.v1.Users",
    "lathe.v1.Groups",   "lathe.v1.Events"};

std::map<std::string, const MethodDescriptor*> MethodsByName() {
  std::map<std::string, const MethodDescriptor*> methods;
  for (const char* name : kPublicServices) {
    const ServiceDescriptor* service = DescriptorPool::generated_pool()->FindServiceByName(name);
    REQUIRE(service != nullptr);
    for (int i = 0; i < service->method_count(); ++i) {
      methods[service->method(i)->name()] = service->method(i);
    }
  }
  return methods;
}

// Values of the placeholders.
using Names = std::vector<std::pair<std::string, std::string>>;

const Names kAbsent = {{"$S", "absent"},
                       {"$M", "absent:train:0"},
                       {"$R", "req-00000000000000000000000000000000"},
                       {"$A", "absent:sample:0"},
                       {"$P", "tinker://absent:train:0/weights/kept"},
                       {"$X", "tinker://absent:train:0/external_weights/kept"},
                       {"$U", "absent-user"},
                       {"$B", "absent-session"},
                       {"$T", "absent"},
                       {"$V", "absent"},
                       {"$K", "aaaaaaaaaaaa"}};

// One tenant with its objects, and another tenant.
class World {
 public:
  World()
      : stranger_(f_.engine, f_.engine.MakeKey("other", kEveryScope)),
        owner_key_(f_.engine.MakeKey("default", kOperator)) {
    f_.client.MakeModel();
    own_ = kAbsent;
    const auto signed_in =
        f_.engine.keys().users().Find(f_.engine.SignIn("owner's user", UserRole::kMember));
    Own("$U") = signed_in->user->user_id;
    Own("$B") = UserBook::SessionIdOf(signed_in->session);
    Own("$S") = f_.client.session_id();
    Own("$M") = f_.client.model_id();
    Own("$R") = f_.client.Save(1, "kept");
    Own("$P") = f_.client.Result(Own("$R")).save_weights().path();
    v1::SaveWeightsExternalRequest external;
    external.set_model_id(f_.client.model_id());
    external.set_seq_id(2);
    external.set_name("kept");
    v1::SubmitResponse exported;
    REQUIRE(v1::Checkpoints::NewStub(f_.engine.channel())
                ->SaveWeightsExternal(CallContext(f_.client.key()), external, &exported)
                .ok());
    f_.client.Result(exported.request_id());
    Own("$X") = "tinker://" + f_.client.model_id() + "/external_weights/kept";
    v1::CreateSamplingSessionRequest sampler;
    sampler.set_session_id(f_.client.session_id());
    sampler.set_base_model("tiny");
    v1::CreateSamplingSessionResponse made;
    REQUIRE(f_.engine.engine()
                .CreateSamplingSession(CallContext(f_.client.key()), sampler, &made)
                .ok());
    Own("$A") = made.sampling_session_id();
    v1::DescribeArchiveRequest describe;
    describe.set_tinker_path(Own("$P"));
    v1::DescribeArchiveResponse archive;
    REQUIRE(
        f_.engine.engine().DescribeArchive(CallContext(f_.client.key()), describe, &archive).ok());
    Own("$T") = archive.token();
    v1::DescribeTraceRequest traced;
    traced.set_session_id(f_.client.session_id());
    v1::DescribeTraceResponse trace;
    REQUIRE(v1::Traces::NewStub(f_.engine.channel())
                ->DescribeTrace(CallContext(f_.client.key()), traced, &trace)
                .ok());
    Own("$V") = trace.token();
    Own("$K") = f_.engine.keys().Authenticate(KeyWith("read"))->key_id;
  }

  const Names& own() const { return own_; }
  const std::string& owner_key() const { return owner_key_; }
  const Client& stranger() const { return stranger_; }
  TestEngine& engine() { return f_.engine; }
  // Key that asked for the links $T and $V.
  const std::string& link_key() const { return f_.client.key(); }
  std::string KeyWith(const std::string& scope) { return f_.engine.MakeKey("default", {scope}); }

  // Further calls come from another machine. They present `secret`; empty: none.
  void CallByNetwork(const std::string& secret) {
    channel_ = f_.engine.DialByNetwork();
    secret_ = secret;
  }

  // Returns the tenant's audit entries of one kind, oldest first.
  std::vector<AuditRow> AuditOf(const std::string& tenant, const std::string& event) {
    std::vector<AuditRow> rows = *f_.engine.runtime().store().ListAudit(
        *f_.engine.keys().TenantId(tenant), "", 0, std::numeric_limits<int64_t>::max(), 1000);
    std::erase_if(rows, [&](const AuditRow& row) { return row.event != event; });
    return rows;
  }

  // Calls with `key` for the objects `names`. The text of the response is stored in `answer`.
  absl::Status Call(const MethodDescriptor& method, const Row& row, const Names& names,
                    const std::string& key, std::string* answer = nullptr) {
    Names values = names;
    const bool is_stranger = key == stranger_.key();
    values.emplace_back("$OWN", (is_stranger ? stranger_ : f_.client).session_id());
    values.emplace_back("$KEY", key);
    values.emplace_back("$N", absl::StrCat(++num_calls_ + 1000));
    google::protobuf::DynamicMessageFactory factory;
    const std::unique_ptr<google::protobuf::Message> request(
        factory.GetPrototype(method.input_type())->New());
    REQUIRE(google::protobuf::TextFormat::ParseFromString(absl::StrReplaceAll(row.request, values),
                                                          request.get()));
    std::string bytes;
    const absl::Status status = Exchange(method, request->SerializeAsString(), key, &bytes);
    if (answer != nullptr) *answer = bytes;
    v1::WatchResponse in_band;
    if (status.ok() && method.output_type() == v1::WatchResponse::descriptor() &&
        in_band.ParseFromString(bytes) && in_band.has_error()) {
      return FromErrorProto(in_band.error());
    }
    v1::EventsResponse event;
    if (status.ok() && method.output_type() == v1::EventsResponse::descriptor() &&
        event.ParseFromString(bytes) && event.has_refused()) {
      const v1::Error& error = event.refused().error();
      return WithDetail(absl::Status(static_cast<absl::StatusCode>(event.refused().grpc_status()),
                                     error.message()),
                        error.code(), error.field());
    }
    return status;
  }

 private:
  std::string& Own(const std::string& placeholder) {
    for (auto& [name, value] : own_) {
      if (name == placeholder) return value;
    }
    FAIL(placeholder);
    std::abort();
  }

  // Performs a call of any kind: one request message, at most one response.
  absl::Status Exchange(const MethodDescriptor& method, const std::string& request,
                        const std::string& key, std::string* answer) {
    grpc::GenericStub stub(channel_);
    CallContext context(key);
    if (!secret_.empty()) {
      static_cast<grpc::ClientContext*>(context)->AddMetadata(kGatewaySecretHeader, secret_);
    }
    grpc::CompletionQueue queue;
    const auto call = stub.PrepareCall(
        context, absl::StrCat("/", method.service()->full_name(), "/", method.name()), &queue);
    const auto await = [&queue] {
      void* tag = nullptr;
      bool ok = false;
      REQUIRE(queue.Next(&tag, &ok));
      return ok;
    };
    call->StartCall(nullptr);
    await();
    grpc::Slice slice(request);
    call->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), nullptr);
    await();
    grpc::ByteBuffer received;
    call->Read(&received, nullptr);
    // The first message is the response; a stream is read to its end.
    while (await()) {
      grpc::Slice whole;
      REQUIRE(received.DumpToSingleSlice(&whole).ok());
      if (answer->empty()) {
        answer->assign(reinterpret_cast<const char*>(whole.begin()), whole.size());
      }
      call->Read(&received, nullptr);
    }
    grpc::Status status;
    call->Finish(&status, nullptr);
    await();
    return FromGrpcStatus(status);
  }

  Fixture f_;
  Client stranger_;
  const std::string owner_key_;
  Names own_;
  int64_t num_calls_ = 0;
  std::shared_ptr<grpc::Channel> channel_ = f_.engine.channel();
  std::string secret_;
};

bool NamesObject(const Row& row) {
  for (const auto& [placeholder, value] : kAbsent) {
    if (row.request.find(placeholder) != std::string::npos) return true;
  }
  return false;
}

TEST_CASE("Authorization: every public rpc has a row", "[engine]") {
  std::set<std::string> rows;
  for (const Row& row : Matrix()) rows.insert(row.method);
  const auto methods = MethodsByName();
  for (const auto& [name, method] : methods) {
    INFO("Matrix() of this file has no row for " << name);
    CHECK(rows.count(name) == 1);
  }
  for (const std::string& row : rows) {
    INFO("no public service has the rpc " << row);
    CHECK(methods.count(row) == 1);
  }
}

TEST_CASE("Authorization: no rpc answers without a key that is known", "[engine]") {
  World world;
  const auto methods = MethodsByName();
  for (const Row& row : Matrix()) {
    INFO(row.method << " " << row.request);
    for (const std::string& key :
         {std::string(), std::string("tml-wrong"), world.owner_key() + "x"}) {
      const absl::Status status = world.Call(*methods.at(row.method), row, world.own(), key);
      CHECK((status.code() == absl::StatusCode::kUnauthenticated) == !row.scopes.empty());
    }
  }
}

TEST_CASE("Authorization: by network, every rpc answers only gateways", "[engine]") {
  World world;
  const auto methods = MethodsByName();
  const std::string right = TestEngine::GatewaySecret();
  for (const std::string& secret : {std::string(), "x" + right.substr(1), right}) {
    world.CallByNetwork(secret);
    for (const Row& row : Matrix()) {
      INFO(row.method << " with the secret '" << secret << "'");
      const absl::Status status =
          world.Call(*methods.at(row.method), row, kAbsent, world.owner_key());
      CHECK((ErrorCode(status) == "not_a_gateway") == (secret != right));
    }
  }
}

TEST_CASE("Authorization: a key does what its scopes say and nothing else", "[engine]") {
  World world;
  const auto methods = MethodsByName();
  for (const std::string& scope : kAllScopes) {
    const std::string key = world.KeyWith(scope);
    for (const Row& row : Matrix()) {
      INFO(scope << ": " << row.method << " " << row.request);
      const absl::Status status = world.Call(*methods.at(row.method), row, kAbsent, key);
      const bool is_allowed = row.scopes.empty() || std::find(row.scopes.begin(), row.scopes.end(),
                                                              scope) != row.scopes.end();
      CHECK((status.code() == absl::StatusCode::kPermissionDenied) == !is_allowed);
      if (!is_allowed) CHECK(ErrorCode(status) == "missing_scope");
    }
  }
}

TEST_CASE("Authorization: a second credential does what its own scopes say", "[engine]") {
  World world;
  const auto methods = MethodsByName();
  for (const auto& [name, method] : methods) {
    const bool takes_token = method->input_type()->FindFieldByName("weights_access_token");
    const bool has_row = std::any_of(TokenMatrix().begin(), TokenMatrix().end(),
                                     [&](const Row& row) { return row.method == name; });
    INFO("TokenMatrix() of this file and " << name);
    CHECK(takes_token == has_row);
  }
  std::vector<std::string> expected;
  for (const Row& row : TokenMatrix()) {
    for (const std::string& scope : kEveryScope) {
      INFO(row.method << " with a token of scope " << scope);
      Names names = world.own();
      names.emplace_back("$W", world.KeyWith(scope));
      const absl::Status status =
          world.Call(*methods.at(row.method), row, names, world.stranger().key());
      INFO(status);
      if (scope == row.scopes.front() || scope == "admin") {
        CHECK(status.ok());
        expected.push_back(row.method == "LoadWeights" ? "load" : "copy");
      } else {
        CHECK(absl::IsPermissionDenied(status));
        CHECK(ErrorCode(status) == "missing_scope");
        CHECK(ErrorField(status) == "weights_access_token");
      }
    }
  }
  std::vector<std::string> uses;
  for (const AuditRow& read : world.AuditOf("default", "checkpoint_read")) {
    CHECK(read.details.front() == std::pair<std::string, std::string>("reader", "other"));
    uses.push_back(read.details.back().second);
  }
  CHECK(uses == expected);
  CHECK(world.AuditOf("other", "checkpoint_read").empty());
}

TEST_CASE("Authorization: a link ends with the key that asked for it", "[engine]") {
  World world;
  const auto methods = MethodsByName();
  const auto open_all = [&](const std::string& code) {
    for (const Row& row : Matrix()) {
      if (!row.scopes.empty()) continue;
      INFO(row.method);
      const absl::Status status = world.Call(*methods.at(row.method), row, world.own(), "");
      CHECK((status.ok() ? "ok" : ErrorCode(status)) == code);
    }
  };
  open_all("ok");
  KeyRing& keys = world.engine().keys();
  REQUIRE(keys.Revoke(keys.Authenticate(world.link_key())->key_id).ok());
  open_all("link_ended");
}

TEST_CASE("Authorization: an object of another tenant is like one that does not exist",
          "[engine]") {
  World world;
  const auto methods = MethodsByName();
  for (const Row& row : Matrix()) {
    if (row.scopes.empty()) continue;
    INFO(row.method << " " << row.request);
    std::string answer;
    const std::string& key = world.stranger().key();
    const MethodDescriptor& method = *methods.at(row.method);
    const absl::Status foreign = world.Call(method, row, world.own(), key, &answer);
    if (row.scopes == kOperator) {
      CHECK(ErrorCode(foreign) == "missing_scope");
      continue;
    }
    if (row.method == "GetOwnSession" || row.method == "EndOwnSession") {
      CHECK(ErrorCode(foreign) == "needs_session");
      continue;
    }
    if (row.scopes == kOperator) {
      CHECK(ErrorCode(foreign) == "missing_scope");
      continue;
    }
    if (!NamesObject(row)) {
      CHECK(foreign.ok());
      for (const auto& [placeholder, value] : world.own()) {
        CHECK(answer.find(value) == std::string::npos);
      }
      continue;
    }
    // Clients would retry an error of CancelSample repeatedly, and give up at one of AwaitSamples.
    // These rpcs have no effect and reveal nothing here.
    const bool hides = row.method == "CancelSample" || row.method == "AwaitSamples";
    const absl::StatusCode expected = hides ? absl::StatusCode::kOk : absl::StatusCode::kNotFound;
    CHECK(foreign.code() == expected);
    const absl::Status absent = world.Call(method, row, kAbsent, key);
    CHECK(absent.code() == expected);
    CHECK(ErrorCode(foreign) == ErrorCode(absent));
    Names to_absent;
    for (size_t i = 0; i < kAbsent.size(); ++i) {
      to_absent.emplace_back(world.own()[i].second, kAbsent[i].second);
    }
    CHECK(absl::StrReplaceAll(foreign.message(), to_absent) == std::string(absent.message()));
  }
  // The calls changed none of the owner's objects: the right key still finds all of them.
  for (const Row& row : Matrix()) {
    INFO(row.method << " " << row.request);
    const absl::Status own =
        world.Call(*methods.at(row.method), row, world.own(), world.owner_key());
    INFO(own.ToString());
    CHECK(own.code() != absl::StatusCode::kNotFound);
    CHECK(own.code() != absl::StatusCode::kPermissionDenied);
    CHECK(own.code() != absl::StatusCode::kUnauthenticated);
  }
}

}  // namespace
}  // namespace lathe::engine
