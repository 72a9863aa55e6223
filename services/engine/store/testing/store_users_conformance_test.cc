// Promises of every store about users, their roles and sessions of browsers.
#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <string>
#include <vector>

#include "services/engine/store/testing/store_harness.h"
#include "services/engine/store/testing/store_rows.h"

namespace lathe::engine {
namespace {

UserRow TestUser(const std::string& id) {
  return {.user_id = id,
          .issuer = "https://id.example",
          .subject = "subject of " + id,
          .email = id + "@lab.example",
          .name = "Ada \xc3\xa9",
          .role = "member",
          .tenant_id = "t1",
          .created_at = 1,
          .last_login_at = 2,
          .disabled_at = 3};
}

UserSessionRow TestUserSession(const std::string& hash, int64_t expires_at) {
  return {.session_hash = hash,
          .user_id = "u1",
          .key_id = "k1",
          .tenant_id = "t1",
          .role = "viewer",
          .created_at = 4,
          .expires_at = expires_at,
          .user_agent = "agent",
          .ip_prefix = "192.0.2.1"};
}

std::string HashesOf(const absl::StatusOr<StoredUsers>& stored) {
  REQUIRE(stored.ok());
  std::vector<std::string> hashes;
  for (const UserSessionRow& row : stored->sessions) hashes.push_back(row.session_hash);
  std::sort(hashes.begin(), hashes.end());
  std::string text;
  for (const std::string& hash : hashes) text += hash;
  return text;
}

TEST_CASE("Store: users, roles and sessions come back as they were written", "[store]") {
  auto harness = MakeStoreHarness();
  UserChange change;
  change.users = {TestUser("u1"), TestUser("u2")};
  change.bindings = {
      {.user_id = "u1", .tenant_id = "t1", .role = "admin", .created_at = 7, .created_by = "k9"}};
  change.sessions = {TestUserSession("a", 100)};
  change.audit = {TestAudit(5)};
  REQUIRE(harness->store().ChangeUsers(change).ok());
  harness->Reopen();
  const absl::StatusOr<StoredUsers> stored = harness->store().ListUsers(0);
  REQUIRE(stored.ok());
  REQUIRE(stored->users.size() == 2);
  const UserRow& user = stored->users[stored->users[0].user_id == "u1" ? 0 : 1];
  CHECK(user.issuer == "https://id.example");
  CHECK(user.subject == "subject of u1");
  CHECK(user.email == "u1@lab.example");
  CHECK(user.name == "Ada \xc3\xa9");
  CHECK(user.role == "member");
  CHECK(user.tenant_id == "t1");
  CHECK(user.created_at == 1);
  CHECK(user.last_login_at == 2);
  CHECK(user.disabled_at == 3);
  REQUIRE(stored->bindings.size() == 1);
  CHECK(stored->bindings[0].role == "admin");
  CHECK(stored->bindings[0].created_by == "k9");
  REQUIRE(stored->sessions.size() == 1);
  const UserSessionRow& session = stored->sessions[0];
  CHECK(session.user_id == "u1");
  CHECK(session.key_id == "k1");
  CHECK(session.role == "viewer");
  CHECK(session.created_at == 4);
  CHECK(session.expires_at == 100);
  CHECK(session.user_agent == "agent");
  CHECK(session.ip_prefix == "192.0.2.1");
  CHECK(harness->store().ListAudit("t1", "", 0, std::numeric_limits<int64_t>::max(), 10)->size() ==
        1);
}

TEST_CASE("Store: a change of users replaces rows and ends sessions", "[store]") {
  auto harness = MakeStoreHarness();
  UserChange first;
  first.users = {TestUser("u1")};
  first.bindings = {{.user_id = "u1", .tenant_id = "t1", .role = "admin"}};
  first.sessions = {TestUserSession("a", 100), TestUserSession("b", 200),
                    TestUserSession("c", 300)};
  REQUIRE(harness->store().ChangeUsers(first).ok());
  CHECK(HashesOf(harness->store().ListUsers(100)) == "bc");
  UserChange second;
  second.users = {TestUser("u1")};
  second.users[0].role = "viewer";
  second.removed_bindings = first.bindings;
  second.ended_sessions = {"b", "absent"};
  second.expired_at = 100;
  REQUIRE(harness->store().ChangeUsers(second).ok());
  const absl::StatusOr<StoredUsers> stored = harness->store().ListUsers(0);
  CHECK(HashesOf(stored) == "c");
  CHECK(stored->bindings.empty());
  REQUIRE(stored->users.size() == 1);
  CHECK(stored->users[0].role == "viewer");
}

TEST_CASE("Store: two users cannot have one identity, and nothing of such a change stays",
          "[store]") {
  auto harness = MakeStoreHarness();
  UserChange change;
  change.users = {TestUser("u1"), TestUser("u2")};
  change.users[1].subject = change.users[0].subject;
  change.sessions = {TestUserSession("a", 100)};
  CHECK_FALSE(harness->store().ChangeUsers(change).ok());
  const absl::StatusOr<StoredUsers> stored = harness->store().ListUsers(0);
  CHECK(stored->users.empty());
  CHECK(stored->sessions.empty());
}

}  // namespace
}  // namespace lathe::engine
