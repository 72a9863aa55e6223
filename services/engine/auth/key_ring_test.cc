#include "services/engine/auth/key_ring.h"

#include <catch2/catch.hpp>

#include "libs/common/api_key/api_key.h"
#include "libs/common/errors.h"
#include "services/engine/store/sqlite/sqlite_store.h"
#include "services/engine/store/testing/temp_dir.h"

namespace lathe::engine {
namespace {

struct Fixture {
  TempDir dir;
  std::unique_ptr<SqliteStore> store = *SqliteStore::Open(
      {.database = dir.path() / "lathe.db", .bodies_dir = dir.path() / "bodies"});
  FakeClock clock;
  KeyRing ring{*store, clock};
};

TEST_CASE("KeyRing: a new key authenticates at once and after a restart", "[auth]") {
  Fixture f;
  const KeyRing::NewKey key = *f.ring.Create("default", "first", {});
  const absl::StatusOr<Caller> caller = f.ring.Authenticate(key.text);
  REQUIRE(caller.ok());
  CHECK(caller->tenant_name == "default");
  CHECK(caller->scopes.HasAny(Scope::kTrain));
  CHECK_FALSE(caller->scopes.HasAny(Scope::kAdmin));

  KeyRing restarted(*f.store, f.clock);
  REQUIRE(restarted.Refresh().ok());
  CHECK(restarted.Authenticate(key.text)->tenant_id == caller->tenant_id);
}

TEST_CASE("KeyRing: admin contains every scope but operator, which contains all", "[auth]") {
  for (const Scope scope : {Scope::kTrain, Scope::kSample, Scope::kRead, Scope::kCheckpointsWrite,
                            Scope::kAdmin, Scope::kOperator}) {
    CHECK(Scopes(Scope::kOperator).HasAny(scope));
    CHECK(Scopes(Scope::kAdmin).HasAny(scope) == (scope != Scope::kOperator));
    CHECK(Scopes(Scope::kTrain).HasAny(scope) == (scope == Scope::kTrain));
  }
}

TEST_CASE("KeyRing: another tenant is an operator's alone", "[auth]") {
  Fixture f;
  const Caller admin = *f.ring.Authenticate((*f.ring.Create("default", "", {"admin"})).text);
  const Caller all = *f.ring.Authenticate((*f.ring.Create("default", "", {"operator"})).text);
  REQUIRE(f.ring.Create("other", "", {}).ok());
  CHECK(*f.ring.TenantFor(admin, "") == admin.tenant_id);
  CHECK(*f.ring.TenantFor(admin, "default") == admin.tenant_id);
  CHECK(*f.ring.TenantFor(all, "other") == *f.ring.TenantId("other"));
  CHECK(absl::IsNotFound(f.ring.TenantFor(all, "absent").status()));
  // The answer does not tell whether the tenant exists.
  for (const char* const name : {"other", "absent"}) {
    const absl::Status refused = f.ring.TenantFor(admin, name).status();
    CHECK(absl::IsPermissionDenied(refused));
    CHECK(ErrorCode(refused) == "missing_scope");
    CHECK(ErrorField(refused) == "tenant");
  }
}

TEST_CASE("KeyRing: whoever lost the right meanwhile makes no key any more", "[auth]") {
  Fixture f;
  const KeyRing::NewKey admin = *f.ring.Create("default", "", {"admin"});
  const KeyRing::NewKey plain = *f.ring.Create("default", "", {});
  const auto make = [&](const std::string& actor) {
    return f.ring.Create("default", "", {}, absl::InfiniteDuration(), actor).status();
  };
  CHECK(make(admin.key_id).ok());
  CHECK(f.ring.Rotate(plain.key_id, absl::Hours(1), admin.key_id).ok());
  CHECK(absl::IsUnauthenticated(make(plain.key_id)));
  REQUIRE(f.ring.Revoke(admin.key_id).ok());
  const size_t num_keys = f.ring.List().size();
  CHECK(absl::IsUnauthenticated(make(admin.key_id)));
  CHECK(
      absl::IsUnauthenticated(f.ring.Rotate(plain.key_id, absl::Hours(1), admin.key_id).status()));
  CHECK(f.ring.List().size() == num_keys);
}

TEST_CASE("KeyRing: peers on sockets and gateways with the credential may call", "[auth]") {
  Fixture f;
  const KeyRing ring(*f.store, f.clock, "secret");
  CHECK(ring.CheckPeer("unix:/run/lathe/engine.sock", "").ok());
  CHECK(ring.CheckPeer("unix:", "wrong").ok());
  CHECK(ring.CheckPeer("ipv4:127.0.0.1:4000", "secret").ok());
  for (const char* const wrong : {"", "secre", "secrets"}) {
    const absl::Status refused = ring.CheckPeer("ipv4:127.0.0.1:4000", wrong);
    CHECK(refused.code() == absl::StatusCode::kFailedPrecondition);
    CHECK(ErrorCode(refused) == "not_a_gateway");
  }
  CHECK_FALSE(f.ring.CheckPeer("ipv6:[::1]:4000", "").ok());
}

TEST_CASE("KeyRing: the store never holds the key itself", "[auth]") {
  Fixture f;
  const KeyRing::NewKey key = *f.ring.Create("default", "first", {});
  const ApiKeyRow row = f.store->ListKeys()->front();
  CHECK(row.secret_sha256.size() == 64);
  CHECK(row.secret_sha256.find(key.text) == std::string::npos);
}

TEST_CASE("KeyRing: unknown, wrong, malformed, expired and revoked keys look the same", "[auth]") {
  Fixture f;
  const KeyRing::NewKey revoked = *f.ring.Create("default", "a", {});
  REQUIRE(f.ring.Revoke(revoked.key_id).ok());
  REQUIRE(f.ring.Revoke(revoked.key_id).ok());
  const KeyRing::NewKey expiring = *f.ring.Create("default", "b", {}, absl::Seconds(5));
  CHECK(f.ring.Authenticate(expiring.text).ok());
  f.clock.Advance(absl::Seconds(5));

  const std::string keys[] = {"", "tml-dummy", MakeApiKey().text, revoked.text, expiring.text};
  for (const std::string& key : keys) {
    const absl::Status status = f.ring.Authenticate(key).status();
    CHECK(status.code() == absl::StatusCode::kUnauthenticated);
    CHECK(status == f.ring.Authenticate("").status());
  }
}

TEST_CASE("KeyRing: two keys of one tenant name share the tenant, others do not", "[auth]") {
  Fixture f;
  const Caller a = *f.ring.Authenticate(f.ring.Create("one", "a", {"train"})->text);
  const Caller b = *f.ring.Authenticate(f.ring.Create("one", "b", {"admin"})->text);
  const Caller c = *f.ring.Authenticate(f.ring.Create("two", "c", {"read"})->text);
  CHECK(a.tenant_id == b.tenant_id);
  CHECK(a.tenant_id != c.tenant_id);
  CHECK(b.scopes.HasAny(Scope::kSample));
  CHECK_FALSE(a.scopes.HasAny(Scope::kSample | Scope::kRead));
}

TEST_CASE("KeyRing: a rotated key gives way to one with the same rights", "[auth]") {
  Fixture f;
  const KeyRing::NewKey old = *f.ring.Create("default", "laptop", {"read"}, absl::Hours(48));
  f.clock.Advance(absl::Hours(24));
  const KeyRing::NewKey fresh = *f.ring.Rotate(old.key_id, absl::Hours(1));
  CHECK(f.ring.Authenticate(fresh.text)->scopes.Words() == std::vector<std::string>{"read"});
  CHECK(f.ring.Find(fresh.key_id)->name == "laptop");
  CHECK(f.ring.Find(fresh.key_id)->expires_at ==
        absl::ToUnixNanos(f.clock.Now() + absl::Hours(48)));
  CHECK(f.ring.Authenticate(old.text).ok());
  f.clock.Advance(absl::Hours(1));
  CHECK_FALSE(f.ring.Authenticate(old.text).ok());
  CHECK(f.ring.Authenticate(fresh.text).ok());
  CHECK(absl::IsFailedPrecondition(f.ring.Rotate(old.key_id, absl::Hours(1)).status()));
  CHECK(absl::IsNotFound(f.ring.Rotate("nobody", absl::Hours(1)).status()));
}

TEST_CASE("KeyRing: rotating without overlap ends the old key at once", "[auth]") {
  Fixture f;
  const KeyRing::NewKey old = *f.ring.Create("default", "", {});
  REQUIRE(f.ring.Rotate(old.key_id, absl::ZeroDuration()).ok());
  CHECK_FALSE(f.ring.Authenticate(old.text).ok());
}

TEST_CASE("KeyRing: a token has its key's rights and ends with it", "[auth]") {
  Fixture f;
  const KeyRing::NewKey key = *f.ring.Create("default", "", {"sample"});
  const std::string jwt = f.ring.IssueToken(*f.ring.Authenticate(key.text))->jwt;
  const Caller caller = *f.ring.Authenticate(jwt);
  CHECK(caller.key_id == key.key_id);
  CHECK(caller.scopes.Words() == std::vector<std::string>{"sample"});
  REQUIRE(f.ring.Revoke(key.key_id).ok());
  CHECK(ErrorCode(f.ring.Authenticate(jwt).status()) == "bad_token");
}

TEST_CASE("KeyRing: every change is in the audit log, and nothing secret is", "[auth]") {
  Fixture f;
  const KeyRing::NewKey key = *f.ring.Create("default", "laptop", {"read"});
  const KeyRing::NewKey fresh = *f.ring.Rotate(key.key_id, absl::Hours(1));
  REQUIRE(f.ring.Revoke(fresh.key_id, /*actor=*/fresh.key_id).ok());
  const std::string tenant_id = f.ring.List().front().row.tenant_id;
  const std::vector<AuditRow> log =
      *f.store->ListAudit(tenant_id, "", 0, absl::ToUnixNanos(f.clock.Now()) + 1, 10);
  REQUIRE(log.size() == 4);
  CHECK(log[0].event == "tenant_create");
  CHECK(log[1].event == "key_create");
  CHECK(log[1].object == key.key_id);
  CHECK(log[2].event == "key_rotate");
  CHECK(log[2].details ==
        Metadata{{"name", "laptop"}, {"new_key_id", fresh.key_id}, {"scopes", "read"}});
  CHECK(log[3].event == "key_revoke");
  CHECK(log[3].actor == fresh.key_id);
  for (const AuditRow& row : log) {
    for (const auto& [name, value] : row.details) {
      CHECK(value.find(key.text.substr(20)) == std::string::npos);
    }
  }
}

TEST_CASE("KeyRing: bad names and scopes are refused by name", "[auth]") {
  Fixture f;
  CHECK(f.ring.Create("", "", {}).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(f.ring.Create(".a", "", {}).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(f.ring.Create("a/b", "", {}).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(f.ring.Create("a", "", {"root"}).status().message()),
             Catch::Contains("scope is 'root'"));
  CHECK(absl::IsInvalidArgument(f.ring.Create("a", "", {}, absl::ZeroDuration()).status()));
  CHECK(absl::IsInvalidArgument(f.ring.Create("a", "", {}, absl::Hours(1'000'000)).status()));
  CHECK(f.ring.List().empty());
  CHECK(f.ring.Revoke("nobody").code() == absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace lathe::engine
