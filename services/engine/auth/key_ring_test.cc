#include "services/engine/auth/key_ring.h"

#include <catch2/catch.hpp>

#include "services/engine/auth/api_key.h"
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
  const KeyRing::NewKey expiring = *f.ring.Create("default", "b", {});
  ApiKeyRow row = f.ring.List().front().row;
  for (const KeyRing::ListedKey& listed : f.ring.List()) {
    if (listed.row.key_id == expiring.key_id) row = listed.row;
  }
  row.expires_at = absl::ToUnixNanos(f.clock.Now() + absl::Seconds(5));
  REQUIRE(f.store->PutKey(row).ok());
  REQUIRE(f.ring.Refresh().ok());
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

TEST_CASE("KeyRing: bad names and scopes are refused by name", "[auth]") {
  Fixture f;
  CHECK(f.ring.Create("", "", {}).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(f.ring.Create(".a", "", {}).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(f.ring.Create("a/b", "", {}).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(f.ring.Create("a", "", {"root"}).status().message()),
             Catch::Contains("scope is 'root'"));
  CHECK(f.ring.Revoke("nobody").code() == absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace lathe::engine
