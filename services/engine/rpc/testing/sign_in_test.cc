// Sessions of browsers through the engine's sockets: who may begin one, and who may see and change
// users.
#include <google/protobuf/descriptor.h>
#include <grpcpp/generic/generic_stub.h>

#include <catch2/catch.hpp>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "libs/common/api_key/user_session.h"
#include "libs/common/errors.h"
#include "libs/common/rpc/cluster_secret.h"
#include "libs/common/rpc/status.h"
#include "protos/lathe/v1/sign_in.grpc.pb.h"
#include "protos/lathe/v1/users.grpc.pb.h"
#include "services/engine/rpc/testing/test_client.h"

namespace lathe::engine {
namespace {

v1::BeginUserSessionRequest PersonIn(const std::string& group, const std::string& subject = "ada") {
  v1::BeginUserSessionRequest request;
  request.set_issuer("https://id.example");
  request.set_subject(subject);
  request.set_email(subject + "@lab.example");
  v1::Claim* const claim = request.add_claims();
  claim->set_name("groups");
  claim->add_values(group);
  request.mutable_browser()->set_user_agent("agent");
  return request;
}

struct SignInFixture {
  TestEngine engine;
  std::unique_ptr<v1::SignIn::Stub> sign_in = v1::SignIn::NewStub(engine.channel());
  std::unique_ptr<v1::Users::Stub> users = v1::Users::NewStub(engine.channel());

  absl::StatusOr<std::string> Begin(const v1::BeginUserSessionRequest& request) {
    v1::BeginSessionResponse response;
    const absl::Status status =
        FromGrpcStatus(sign_in->BeginUserSession(CallContext(""), request, &response));
    if (!status.ok()) return status;
    return response.user_session();
  }
  absl::StatusOr<v1::GetOwnSessionResponse> Own(const std::string& credential) {
    v1::GetOwnSessionResponse response;
    const absl::Status status =
        FromGrpcStatus(users->GetOwnSession(CallContext(credential), {}, &response));
    if (!status.ok()) return status;
    return response;
  }
  absl::StatusOr<v1::User> Update(const std::string& credential, const std::string& user_id,
                                  const std::string& role) {
    v1::UpdateUserRequest request;
    request.set_user_id(user_id);
    request.set_role(role);
    v1::UpdateUserResponse response;
    const absl::Status status =
        FromGrpcStatus(users->UpdateUser(CallContext(credential), request, &response));
    if (!status.ok()) return status;
    return response.user();
  }
};

TEST_CASE("SignIn: by network, a tenant's key begins no session and gets no key of cookies",
          "[engine][auth]") {
  SignInFixture f;
  const std::string key = f.engine.MakeKey("default", {"admin"});
  const google::protobuf::ServiceDescriptor* const service =
      google::protobuf::DescriptorPool::generated_pool()->FindServiceByName("lathe.v1.SignIn");
  REQUIRE(service->method_count() > 0);
  for (int i = 0; i < service->method_count(); ++i) {
    for (const std::string& secret :
         {std::string(), std::string("wrong"), TestEngine::GatewaySecret()}) {
      INFO(service->method(i)->name() << " with the secret '" << secret << "'");
      grpc::GenericStub stub(f.engine.DialByNetwork());
      CallContext context(key);
      if (!secret.empty()) {
        static_cast<grpc::ClientContext*>(context)->AddMetadata(kGatewaySecretHeader, secret);
      }
      grpc::CompletionQueue queue;
      const grpc::Slice empty;
      const auto call = stub.PrepareUnaryCall(
          context, absl::StrCat("/lathe.v1.SignIn/", service->method(i)->name()),
          grpc::ByteBuffer(&empty, 1), &queue);
      call->StartCall();
      grpc::ByteBuffer response;
      grpc::Status status;
      call->Finish(&response, &status, nullptr);
      void* tag = nullptr;
      bool ok = false;
      REQUIRE(queue.Next(&tag, &ok));
      const bool is_gateway = secret == TestEngine::GatewaySecret();
      CHECK((ErrorCode(FromGrpcStatus(status)) == "not_a_gateway") == !is_gateway);
    }
  }
}

TEST_CASE("SignIn: the engine maps claims to a role, and refuses strangers", "[engine][auth]") {
  SignInFixture f;
  const absl::StatusOr<std::string> session = f.Begin(PersonIn("lab"));
  REQUIRE(session.ok());
  const absl::StatusOr<v1::GetOwnSessionResponse> own = f.Own(*session);
  REQUIRE(own.ok());
  CHECK(own->user().subject() == "ada");
  CHECK(own->role() == "member");
  CHECK(own->tenant() == "default");
  CHECK(own->scopes_size() == 4);
  CHECK(own->session().user_agent() == "agent");

  const absl::Status stranger = f.Begin(PersonIn("other", "eve")).status();
  CHECK(absl::IsPermissionDenied(stranger));
  CHECK(ErrorCode(stranger) == "unmapped");
  CHECK_THAT(std::string(stranger.message()), Catch::Contains("'eve'"));
  const std::vector<AuditRow> rows =
      *f.engine.runtime().store().ListAudit(*f.engine.keys().TenantId("default"), "organizations",
                                            0, std::numeric_limits<int64_t>::max(), 10);
  CHECK(rows.back().object == "eve");
  CHECK(rows.back().outcome == "unmapped");
}

TEST_CASE("SignIn: an identity that is too long is refused with its bound", "[engine][auth]") {
  SignInFixture f;
  v1::BeginUserSessionRequest request = PersonIn("lab", std::string(256, 's'));
  CHECK_THAT(std::string(f.Begin(request).status().message()),
             Catch::Contains("subject has 256 bytes, expected 1 to 255"));
  request = PersonIn("lab");
  request.clear_issuer();
  CHECK(ErrorField(f.Begin(request).status()) == "issuer");
  request = PersonIn("lab");
  for (int i = 0; i < 64; ++i) request.add_claims()->set_name(absl::StrCat(i));
  CHECK_THAT(std::string(f.Begin(request).status().message()), Catch::Contains("limit is 64"));
  request = PersonIn("lab");
  for (int i = 0; i < 1000; ++i) request.mutable_claims(0)->add_values("x");
  CHECK_THAT(std::string(f.Begin(request).status().message()), Catch::Contains("limit is 1000"));
}

TEST_CASE("SignIn: a key's session has the key's scopes and ends with it", "[engine][auth]") {
  SignInFixture f;
  const std::string key = f.engine.MakeKey("default", {"read"});
  v1::BeginSessionResponse begun;
  REQUIRE(f.sign_in->BeginKeySession(CallContext(key), {}, &begun).ok());
  const std::string session = begun.user_session();
  const absl::StatusOr<v1::GetOwnSessionResponse> own = f.Own(session);
  REQUIRE(own.ok());
  CHECK_FALSE(own->has_user());
  CHECK(own->key_name() == "test");
  CHECK(own->role() == "viewer");
  // No session makes another one.
  CHECK(absl::IsUnauthenticated(
      FromGrpcStatus(f.sign_in->BeginKeySession(CallContext(session), {}, &begun))));
  CHECK(ErrorCode(f.Own(key).status()) == "needs_session");
  v1::RevokeOwnKeyResponse revoked;
  REQUIRE(f.engine.tenants().RevokeOwnKey(CallContext(key), {}, &revoked).ok());
  CHECK(ErrorCode(f.Own(session).status()) == "bad_session");
}

TEST_CASE("SignIn: a ticket of the admin socket makes one operator's session", "[engine][auth]") {
  SignInFixture f;
  v1::CreateTicketResponse ticket;
  REQUIRE(f.engine.admin().CreateTicket(CallContext(""), {}, &ticket).ok());
  v1::RedeemTicketRequest request;
  request.set_ticket(ticket.ticket());
  v1::BeginSessionResponse begun;
  REQUIRE(f.sign_in->RedeemTicket(CallContext(""), request, &begun).ok());
  CHECK(f.Own(begun.user_session())->role() == "operator");
  CHECK(ErrorCode(FromGrpcStatus(f.sign_in->RedeemTicket(CallContext(""), request, &begun))) ==
        "bad_ticket");
}

TEST_CASE("SignIn: gateways share the sealing keys, which change", "[engine][auth]") {
  SignInFixture f;
  const auto read = [&] {
    v1::GetSealingKeysResponse response;
    REQUIRE(f.sign_in->GetSealingKeys(CallContext(""), {}, &response).ok());
    REQUIRE(response.keys_size() == 2);
    CHECK(response.keys(0).key().size() == 32);
    return response;
  };
  const v1::GetSealingKeysResponse first = read();
  CHECK(first.keys(0).key() == read().keys(0).key());
  f.engine.clock().Advance(absl::Hours(30 * 24));
  const v1::GetSealingKeysResponse later = read();
  CHECK(later.keys(1).key() == first.keys(0).key());
  CHECK(later.keys(0).key() != first.keys(0).key());
}

TEST_CASE("Users: a sign-out ends the session at once", "[engine][auth]") {
  SignInFixture f;
  const std::string session = *f.Begin(PersonIn("lab"));
  v1::EndOwnSessionResponse ended;
  REQUIRE(f.users->EndOwnSession(CallContext(session), {}, &ended).ok());
  CHECK(ended.issuer() == "https://id.example");
  CHECK(ErrorCode(f.Own(session).status()) == "bad_session");
}

TEST_CASE("Users: a call with a key and a session is refused", "[engine][auth]") {
  SignInFixture f;
  CallContext context(*f.Begin(PersonIn("lab")));
  static_cast<grpc::ClientContext*>(context)->AddMetadata("x-api-key", f.engine.MakeKey("default"));
  v1::GetOwnSessionResponse own;
  CHECK(ErrorCode(FromGrpcStatus(f.users->GetOwnSession(context, {}, &own))) == "two_credentials");
}

TEST_CASE("Users: administrators see their tenant, operators all, and only they make operators",
          "[engine][auth]") {
  SignInFixture f;
  const std::string boss = f.engine.SignIn("boss", UserRole::kAdmin);
  const std::string root = f.engine.SignIn("root", UserRole::kOperator);
  const std::string far = f.engine.SignIn("far", UserRole::kMember, "other");
  const auto id_of = [&](const std::string& session) { return f.Own(session)->user().user_id(); };
  const auto count = [&](const std::string& credential) {
    v1::ListUsersResponse response;
    REQUIRE(f.users->ListUsers(CallContext(credential), {}, &response).ok());
    CHECK(response.total_count() == response.users_size());
    return response.users_size();
  };
  CHECK(count(boss) == 2);
  CHECK(count(root) == 3);
  CHECK(count(f.engine.MakeKey("other", {"admin"})) == 1);

  const std::string root_id = id_of(root);
  const std::string far_id = id_of(far);
  CHECK(ErrorCode(f.Update(boss, far_id, "viewer").status()) == "not_found");
  CHECK(ErrorCode(f.Update(boss, root_id, "viewer").status()) == "needs_operator");
  CHECK(ErrorCode(f.Update(boss, id_of(boss), "operator").status()) == "needs_operator");
  CHECK(ErrorField(f.Update(boss, id_of(boss), "root").status()) == "role");
  const absl::StatusOr<v1::User> changed = f.Update(root, far_id, "admin");
  REQUIRE(changed.ok());
  CHECK(changed->role() == "admin");
  CHECK(changed->role_is_bound());
  // The user signs in again to use it.
  CHECK(ErrorCode(f.Own(far).status()) == "bad_session");
  CHECK(f.Own(f.engine.SignIn("far", UserRole::kMember, "other"))->role() == "admin");
}

TEST_CASE("Users: an administrator ends a session of a user", "[engine][auth]") {
  SignInFixture f;
  const std::string boss = f.engine.SignIn("boss", UserRole::kAdmin);
  const std::string session = f.engine.SignIn("ada", UserRole::kMember);
  v1::ListUserSessionsRequest list;
  list.set_user_id(f.Own(session)->user().user_id());
  v1::ListUserSessionsResponse sessions;
  REQUIRE(f.users->ListUserSessions(CallContext(boss), list, &sessions).ok());
  REQUIRE(sessions.sessions_size() == 1);
  v1::EndUserSessionRequest end;
  end.set_user_id(list.user_id());
  end.set_session_id(sessions.sessions(0).session_id());
  v1::EndUserSessionResponse ended;
  REQUIRE(f.users->EndUserSession(CallContext(boss), end, &ended).ok());
  CHECK(ErrorCode(f.Own(session).status()) == "bad_session");
  CHECK(ErrorCode(FromGrpcStatus(f.users->EndUserSession(CallContext(boss), end, &ended))) ==
        "not_found");
}

TEST_CASE("Users: a link ends with the user who asked for it", "[engine][auth]") {
  Fixture f;
  f.client.MakeModel();
  f.client.Result(f.client.Save(1, "kept"));
  const std::string session = f.engine.SignIn("ada", UserRole::kMember);
  v1::DescribeArchiveRequest describe;
  describe.set_tinker_path("tinker://" + f.client.model_id() + "/weights/kept");
  v1::DescribeArchiveResponse archive;
  REQUIRE(f.engine.engine().DescribeArchive(CallContext(session), describe, &archive).ok());
  v1::OpenArchiveRequest open;
  open.set_token(archive.token());
  v1::OpenArchiveResponse opened;
  CHECK(f.engine.engine().OpenArchive(CallContext(""), open, &opened).ok());
  UserRow user = *f.engine.keys().users().Find(session)->user;
  user.disabled_at = 1;
  REQUIRE(f.engine.keys().users().Update(user, std::nullopt, {}).ok());
  CHECK(ErrorCode(FromGrpcStatus(f.engine.engine().OpenArchive(CallContext(""), open, &opened))) ==
        "link_ended");
}

}  // namespace
}  // namespace lathe::engine
