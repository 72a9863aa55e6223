// A caller's own key, tokens, and the audit log, through the engine's sockets.
#include <catch2/catch.hpp>
#include <string>

#include "libs/common/errors.h"
#include "libs/common/rpc/status.h"
#include "services/engine/auth/audit_log.h"
#include "services/engine/rpc/testing/test_client.h"

namespace lathe::engine {
namespace {

absl::Status CanList(TestEngine& engine, const std::string& credential) {
  v1::ListRunsResponse runs;
  return FromGrpcStatus(engine.engine().ListRuns(CallContext(credential), {}, &runs));
}

TEST_CASE("Tenants: a key describes itself and can end itself", "[engine][auth]") {
  TestEngine engine;
  const std::string key = engine.MakeKey("default", {"read"});
  v1::GetOwnKeyResponse own;
  REQUIRE(engine.tenants().GetOwnKey(CallContext(key), {}, &own).ok());
  CHECK(own.tenant() == "default");
  CHECK(own.name() == "test");
  CHECK(own.scopes_size() == 1);
  v1::RevokeOwnKeyResponse revoked;
  REQUIRE(engine.tenants().RevokeOwnKey(CallContext(key), {}, &revoked).ok());
  CHECK(absl::IsUnauthenticated(CanList(engine, key)));
}

TEST_CASE("Tenants: a token does what its key does, until time or the key ends it",
          "[engine][auth]") {
  TestEngine engine;
  const std::string key = engine.MakeKey("default", {"read"});
  v1::ExchangeTokenResponse token;
  REQUIRE(engine.tenants().ExchangeToken(CallContext(key), {}, &token).ok());
  CHECK(CanList(engine, token.jwt()).ok());
  v1::SubmitResponse response;
  CHECK(ErrorCode(FromGrpcStatus(engine.engine().CreateModel(CallContext(token.jwt()), {},
                                                             &response))) == "missing_scope");
  engine.Restart();
  CHECK(CanList(engine, token.jwt()).ok());
  engine.clock().Advance(TokenSigner::kLifetime + TokenSigner::kLeeway);
  CHECK(ErrorCode(CanList(engine, token.jwt())) == "bad_token");
  CHECK(CanList(engine, key).ok());

  REQUIRE(engine.tenants().ExchangeToken(CallContext(key), {}, &token).ok());
  v1::RevokeOwnKeyResponse revoked;
  REQUIRE(engine.tenants().RevokeOwnKey(CallContext(token.jwt()), {}, &revoked).ok());
  CHECK(ErrorCode(CanList(engine, token.jwt())) == "bad_token");
  CHECK(absl::IsUnauthenticated(CanList(engine, key)));
}

TEST_CASE("Tenants: an administrator reads the tenant's audit log, by resource and day",
          "[engine][auth]") {
  TestEngine engine;
  const std::string admin = engine.MakeKey("default", {"admin"});
  engine.MakeKey("other");
  v1::DeleteCheckpointRequest remove;
  remove.set_tinker_path("tinker://nobody:train:0/weights/a");
  v1::DeleteCheckpointResponse removed;
  CHECK_FALSE(engine.engine().DeleteCheckpoint(CallContext(admin), remove, &removed).ok());

  v1::ListAuditRequest request;
  v1::ListAuditResponse log;
  REQUIRE(engine.tenants().ListAudit(CallContext(admin), request, &log).ok());
  REQUIRE(log.entries_size() == 3);
  CHECK(log.entries(0).event() == "tenant_create");
  CHECK(log.entries(1).event() == "key_create");
  CHECK(log.entries(2).event() == "checkpoint_delete");
  CHECK(log.entries(2).outcome() == "not_found");
  CHECK(log.entries(2).object() == remove.tinker_path());
  CHECK(log.entries(2).actor() == log.entries(1).object());

  request.set_event_type("checkpoints");
  REQUIRE(engine.tenants().ListAudit(CallContext(admin), request, &log).ok());
  CHECK(log.entries_size() == 1);
  request.set_day("2001-02-03");
  REQUIRE(engine.tenants().ListAudit(CallContext(admin), request, &log).ok());
  CHECK(log.entries_size() == 0);
  request.set_day("2001-2-3");
  CHECK(ErrorField(FromGrpcStatus(engine.tenants().ListAudit(CallContext(admin), request, &log))) ==
        "day");
  request.set_event_type("weights");
  CHECK(ErrorField(FromGrpcStatus(engine.tenants().ListAudit(CallContext(admin), request, &log))) ==
        "event_type");
}

TEST_CASE("Tenants: a day's log is filtered and read in pages from its end", "[engine][auth]") {
  TestEngine engine;
  const std::string admin = engine.MakeKey("default", {"admin"});
  for (int i = 0; i < 5; ++i) engine.MakeKey("default");
  v1::ListAuditRequest request;
  request.set_limit(2);
  v1::ListAuditResponse page;
  REQUIRE(engine.tenants().ListAudit(CallContext(admin), request, &page).ok());
  CHECK(page.total_count() == 7);
  CHECK_FALSE(page.is_cut());
  REQUIRE(page.entries_size() == 2);
  const std::string newest = page.entries(1).object();
  request.set_offset(2);
  REQUIRE(engine.tenants().ListAudit(CallContext(admin), request, &page).ok());
  REQUIRE(page.entries_size() == 2);
  CHECK(page.entries(1).object() != newest);
  request.set_offset(0);
  request.set_object(newest);
  REQUIRE(engine.tenants().ListAudit(CallContext(admin), request, &page).ok());
  CHECK(page.total_count() == 1);
  request.set_actor("nobody");
  REQUIRE(engine.tenants().ListAudit(CallContext(admin), request, &page).ok());
  CHECK(page.total_count() == 0);
  request.set_object(std::string(257, 'x'));
  CHECK(ErrorField(FromGrpcStatus(
            engine.tenants().ListAudit(CallContext(admin), request, &page))) == "object");
  request.clear_object();
  request.set_tenant("other");
  CHECK(ErrorCode(FromGrpcStatus(engine.tenants().ListAudit(CallContext(admin), request, &page))) ==
        "missing_scope");
}

// A call of a tenant's administrator, whose error is returned.
template <typename Method, typename Request, typename Response>
absl::Status CallAs(TestEngine& engine, const std::string& key, Method method,
                    const Request& request, Response* response) {
  return FromGrpcStatus((engine.tenants().*method)(CallContext(key), request, response));
}

TEST_CASE("Tenants: an administrator makes, lists, rotates and revokes the tenant's keys",
          "[engine][auth]") {
  using Stub = v1::Tenants::Stub;
  TestEngine engine;
  const std::string admin = engine.MakeKey("default", {"admin"});
  v1::CreateKeyRequest create;
  create.set_name("laptop");
  create.add_scopes("read");
  create.set_expires_in_seconds(60);
  v1::CreateKeyResponse made;
  REQUIRE(CallAs(engine, admin, &Stub::CreateTenantKey, create, &made).ok());
  CHECK(CanList(engine, made.api_key()).ok());
  v1::ListTenantKeysResponse keys;
  REQUIRE(CallAs(engine, admin, &Stub::ListTenantKeys, v1::ListTenantKeysRequest(), &keys).ok());
  REQUIRE(keys.total_count() == 2);
  const bool is_first = keys.keys(0).key_id() == made.key_id();
  CHECK(keys.keys(is_first ? 0 : 1).name() == "laptop");
  CHECK(keys.keys(0).tenant() == "default");
  v1::RotateKeyRequest rotate;
  rotate.set_key_id(made.key_id());
  v1::RotateKeyResponse fresh;
  REQUIRE(CallAs(engine, admin, &Stub::RotateTenantKey, rotate, &fresh).ok());
  CHECK(absl::IsUnauthenticated(CanList(engine, made.api_key())));
  v1::RevokeKeyRequest revoke;
  revoke.set_key_id(fresh.key_id());
  v1::RevokeKeyResponse revoked;
  REQUIRE(CallAs(engine, admin, &Stub::RevokeTenantKey, revoke, &revoked).ok());
  CHECK(absl::IsUnauthenticated(CanList(engine, fresh.api_key())));

  REQUIRE(CallAs(engine, admin, &Stub::ListTenantKeys, v1::ListTenantKeysRequest(), &keys).ok());
  CHECK(keys.total_count() == 1);
  v1::ListTenantKeysRequest with_ended;
  with_ended.set_with_ended(true);
  with_ended.set_limit(1);
  REQUIRE(CallAs(engine, admin, &Stub::ListTenantKeys, with_ended, &keys).ok());
  CHECK(keys.total_count() == 3);
  CHECK(keys.keys_size() == 1);
  // The log names who did it.
  v1::ListAuditRequest of_admin;
  of_admin.set_actor(engine.keys().Authenticate(admin)->key_id);
  v1::ListAuditResponse log;
  REQUIRE(engine.tenants().ListAudit(CallContext(admin), of_admin, &log).ok());
  CHECK(log.total_count() == 3);
}

TEST_CASE("Tenants: an administrator reaches neither other tenants nor operators' keys",
          "[engine][auth]") {
  using Stub = v1::Tenants::Stub;
  TestEngine engine;
  const std::string admin = engine.MakeKey("default", {"admin"});
  const std::string all = engine.MakeKey("default", {"operator"});
  engine.MakeKey("other");
  v1::CreateKeyRequest create;
  v1::CreateKeyResponse made;
  create.add_scopes("operator");
  CHECK(ErrorField(CallAs(engine, admin, &Stub::CreateTenantKey, create, &made)) == "scopes");
  create.clear_scopes();
  create.set_tenant("new");
  CHECK(ErrorField(CallAs(engine, admin, &Stub::CreateTenantKey, create, &made)) == "tenant");
  const std::string operators_key = engine.keys().Authenticate(all)->key_id;
  v1::RotateKeyRequest rotate;
  rotate.set_key_id(operators_key);
  v1::RotateKeyResponse fresh;
  CHECK(ErrorCode(CallAs(engine, admin, &Stub::RotateTenantKey, rotate, &fresh)) ==
        "missing_scope");
  v1::RevokeKeyRequest revoke;
  revoke.set_key_id(operators_key);
  v1::RevokeKeyResponse revoked;
  CHECK(ErrorCode(CallAs(engine, admin, &Stub::RevokeTenantKey, revoke, &revoked)) ==
        "missing_scope");
  CHECK(CanList(engine, all).ok());

  v1::ListTenantsResponse tenants;
  REQUIRE(CallAs(engine, admin, &Stub::ListTenants, v1::ListTenantsRequest(), &tenants).ok());
  CHECK(tenants.total_count() == 1);
  REQUIRE(CallAs(engine, all, &Stub::ListTenants, v1::ListTenantsRequest(), &tenants).ok());
  CHECK(tenants.total_count() == 2);
  CHECK(tenants.tenants(0).name() == "default");
  REQUIRE(CallAs(engine, all, &Stub::CreateTenantKey, create, &made).ok());
  CHECK(engine.keys().Authenticate(made.api_key())->tenant_name == "new");
  v1::ListTenantKeysResponse keys;
  REQUIRE(CallAs(engine, all, &Stub::ListTenantKeys, v1::ListTenantKeysRequest(), &keys).ok());
  CHECK(keys.total_count() == 4);
}

TEST_CASE("Admin: keys expire and rotate", "[engine][auth]") {
  TestEngine engine;
  v1::CreateKeyRequest create;
  create.set_tenant("default");
  create.set_expires_in_seconds(60);
  v1::CreateKeyResponse old;
  REQUIRE(engine.admin().CreateKey(CallContext(""), create, &old).ok());
  CHECK(old.has_expires_at());
  v1::RotateKeyRequest rotate;
  rotate.set_key_id(old.key_id());
  v1::RotateKeyResponse fresh;
  REQUIRE(engine.admin().RotateKey(CallContext(""), rotate, &fresh).ok());
  CHECK(absl::IsUnauthenticated(CanList(engine, old.api_key())));
  CHECK(CanList(engine, fresh.api_key()).ok());
  engine.clock().Advance(absl::Seconds(60));
  CHECK(absl::IsUnauthenticated(CanList(engine, fresh.api_key())));
  v1::ListKeysResponse keys;
  REQUIRE(engine.admin().ListKeys(CallContext(""), {}, &keys).ok());
  CHECK(keys.keys_size() == 2);
  create.set_expires_in_seconds(0);
  CHECK(ErrorField(FromGrpcStatus(engine.admin().CreateKey(CallContext(""), create, &old))) ==
        "expires_in_seconds");
}

TEST_CASE("Admin: quotas are set field by field, listed, and outlive a restart", "[engine]") {
  Fixture f;
  f.client.MakeModel();
  v1::SetQuotaRequest request;
  request.set_tenant("default");
  request.mutable_quota()->set_adapters(1);
  v1::SetQuotaResponse quota;
  REQUIRE(f.engine.admin().SetQuota(CallContext(""), request, &quota).ok());
  request.mutable_quota()->clear_adapters();
  request.mutable_quota()->set_stored_bytes(5);
  REQUIRE(f.engine.admin().SetQuota(CallContext(""), request, &quota).ok());
  CHECK(quota.quota().adapters() == 1);
  std::string id;
  const absl::Status refused = f.client.CreateModel(&id, 1);
  CHECK(absl::IsPermissionDenied(refused));
  CHECK(ErrorCode(refused) == "adapter_quota");

  f.engine.Restart();
  v1::ListTenantsResponse tenants;
  REQUIRE(f.engine.admin().ListTenants(CallContext(""), {}, &tenants).ok());
  REQUIRE(tenants.tenants_size() == 1);
  CHECK(tenants.tenants(0).name() == "default");
  CHECK(tenants.tenants(0).adapters() == 1);
  CHECK(tenants.tenants(0).quota().stored_bytes() == 5);

  request.mutable_quota()->set_stored_bytes(-1);
  CHECK(ErrorField(FromGrpcStatus(f.engine.admin().SetQuota(CallContext(""), request, &quota))) ==
        "stored_bytes");
  request.set_tenant("nobody");
  CHECK(f.engine.admin().SetQuota(CallContext(""), request, &quota).error_code() ==
        grpc::StatusCode::NOT_FOUND);
}

TEST_CASE("Admin: limits with defaults are listed with what they bound", "[engine]") {
  Fixture f;
  f.client.MakeModel();
  v1::ListTenantsResponse tenants;
  REQUIRE(f.engine.admin().ListTenants(CallContext(""), {}, &tenants).ok());
  const CoreOptions defaults;
  CHECK(tenants.tenants(0).sessions() == 1);
  CHECK(tenants.tenants(0).quota().sessions() == defaults.max_sessions_per_tenant);
  CHECK(tenants.tenants(0).quota().samplers() == defaults.max_samplers_per_tenant);
  CHECK(tenants.tenants(0).quota().unfetched_bytes() == defaults.max_unfetched_bytes_per_tenant);

  v1::SetQuotaRequest request;
  request.set_tenant("default");
  request.mutable_quota()->set_sessions(1);
  v1::SetQuotaResponse quota;
  REQUIRE(f.engine.admin().SetQuota(CallContext(""), request, &quota).ok());
  CHECK(quota.quota().sessions() == 1);
  CHECK(quota.quota().samplers() == defaults.max_samplers_per_tenant);
  v1::CreateSessionRequest session;
  session.set_ordering(v1::SESSION_ORDERING_SERIAL);
  v1::CreateSessionResponse created;
  const absl::Status refused = FromGrpcStatus(
      f.engine.engine().CreateSession(CallContext(f.client.key()), session, &created));
  CHECK(absl::IsPermissionDenied(refused));
  CHECK(ErrorCode(refused) == "session_quota");
}

TEST_CASE("Quotas: results above the limit that nobody fetched are gone, with a reason",
          "[engine]") {
  Fixture f;
  f.client.MakeModel();
  v1::SetQuotaRequest request;
  request.set_tenant("default");
  request.mutable_quota()->set_unfetched_results(1);
  v1::SetQuotaResponse quota;
  REQUIRE(f.engine.admin().SetQuota(CallContext(""), request, &quota).ok());
  // Invalid requests end at once.
  v1::ForwardBackwardRequest invalid = f.client.TrainRequest(1);
  invalid.mutable_loss()->set_name("no_such_loss");
  const std::string first = f.client.Accept(&v1::Engine::Stub::ForwardBackward, invalid);
  f.engine.clock().Advance(absl::Milliseconds(1));
  invalid.set_seq_id(2);
  const std::string second = f.client.Accept(&v1::Engine::Stub::ForwardBackward, invalid);
  v1::GetResultResponse response;
  const absl::Status gone = FromGrpcStatus(f.client.GetResult(first, &response));
  CHECK(absl::IsOutOfRange(gone));
  CHECK(ErrorCode(gone) == "result_expired");
  CHECK_THAT(std::string(gone.message()), Catch::Contains("unfetched_results"));
  CHECK(f.client.Result(second).has_error());
}

TEST_CASE("Quotas: a tenant above its queue costs no writes of bodies", "[engine]") {
  Fixture f;
  f.client.MakeModel();
  v1::SetQuotaRequest request;
  request.set_tenant("default");
  request.mutable_quota()->set_queued_bytes(1);
  v1::SetQuotaResponse quota;
  REQUIRE(f.engine.admin().SetQuota(CallContext(""), request, &quota).ok());
  f.worker.Detach();  // so that the request stays queued
  const v1::ForwardBackwardRequest queued = f.client.TrainRequest(1);
  const std::string known = f.client.Accept(&v1::Engine::Stub::ForwardBackward, queued);
  const int64_t num_added = f.engine.runtime().bodies().num_added();
  for (int64_t seq = 2; seq < 7; ++seq) {
    std::string id;
    const absl::Status refused =
        f.client.Submit(&v1::Engine::Stub::ForwardBackward, f.client.TrainRequest(seq), &id);
    CHECK(absl::IsResourceExhausted(refused));
    CHECK(ErrorCode(refused) == "queue_quota");
  }
  // A repetition is answered without its body.
  CHECK(f.client.Accept(&v1::Engine::Stub::ForwardBackward, queued) == known);
  CHECK(f.engine.runtime().bodies().num_added() == num_added);
}

TEST_CASE("Admin: the audit log is exported, and pruned as it was exported", "[engine][auth]") {
  TestEngine engine;
  engine.MakeKey("default");
  v1::ExportAuditRequest request;
  request.mutable_before()->set_seconds(absl::ToUnixSeconds(engine.clock().Now()));
  v1::ExportAuditResponse page;
  CHECK(ErrorField(FromGrpcStatus(engine.admin().ExportAudit(CallContext(""), request, &page))) ==
        "before");
  engine.clock().Advance(absl::Minutes(2));
  request.mutable_before()->set_seconds(request.before().seconds() + 1);
  REQUIRE(engine.admin().ExportAudit(CallContext(""), request, &page).ok());
  REQUIRE(page.entries_size() == 2);
  CHECK(page.entries(0).tenant() == "default");
  CHECK(page.entries(0).entry().event() == "tenant_create");
  CHECK(page.entries(1).entry().event() == "key_create");

  v1::PruneAuditRequest prune;
  *prune.mutable_before() = request.before();
  prune.set_through_id(page.entries(1).id());
  prune.set_num_entries(1);
  v1::PruneAuditResponse pruned;
  CHECK_FALSE(engine.admin().PruneAudit(CallContext(""), prune, &pruned).ok());
  prune.set_num_entries(2);
  REQUIRE(engine.admin().PruneAudit(CallContext(""), prune, &pruned).ok());
  REQUIRE(engine.admin().ExportAudit(CallContext(""), request, &page).ok());
  CHECK(page.entries_size() == 0);
}

TEST_CASE("Audit: equal reads within a minute are one entry", "[engine][auth]") {
  TestEngine engine;
  AuditLog log(engine.runtime().store(), engine.clock());
  Caller caller;
  caller.tenant_id = "t";
  caller.key_id = "k1";
  const auto count = [&] {
    const int64_t until = absl::ToUnixNanos(engine.clock().Now()) + 1;
    return engine.runtime().store().ListAudit("t", "", 0, until, 100)->size();
  };
  for (int i = 0; i < 5; ++i) REQUIRE(log.RecordRead(caller, "checkpoint_download", "a").ok());
  CHECK(count() == 1);
  REQUIRE(log.RecordRead(caller, "checkpoint_download", "b").ok());
  REQUIRE(log.RecordRead(caller, "checkpoint_read", "a", {{"use", "copy"}}).ok());
  caller.key_id = "k2";
  REQUIRE(log.RecordRead(caller, "checkpoint_download", "a").ok());
  CHECK(count() == 4);
  engine.clock().Advance(absl::Minutes(1));
  REQUIRE(log.RecordRead(caller, "checkpoint_download", "a").ok());
  CHECK(count() == 5);
}

}  // namespace
}  // namespace lathe::engine
