#include "services/engine/auth/user_book.h"

#include <catch2/catch.hpp>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "libs/common/errors.h"
#include "services/engine/auth/key_ring.h"
#include "services/engine/store/sqlite/sqlite_store.h"
#include "services/engine/store/testing/temp_dir.h"

namespace lathe::engine {
namespace {

const Browser kBrowser = {.user_agent = "browser", .ip_prefix = "192.0.2.1"};

struct BookFixture {
  TempDir dir;
  std::unique_ptr<SqliteStore> store = *SqliteStore::Open(
      {.database = dir.path() / "lathe.db", .bodies_dir = dir.path() / "bodies"});
  FakeClock clock;
  KeyRing ring{*store, clock};
  UserBook& book = ring.users();

  std::string SignIn(const std::string& subject, UserRole role = UserRole::kMember,
                     const std::string& tenant = "t1") {
    const auto session = book.BeginForUser(Person(subject), role, tenant, kBrowser);
    INFO(session.status());
    REQUIRE(session.ok());
    return session->text;
  }
  static Identity Person(const std::string& subject) {
    Identity person;
    person.issuer = "https://id.example";
    person.subject = subject;
    person.email = subject + "@lab.example";
    person.name = subject;
    return person;
  }
  UserRow UserOf(const std::string& session) {
    const auto found = book.Find(session);
    REQUIRE(found);
    return *found->user;
  }
  std::vector<std::string> Events(const std::string& tenant) {
    std::vector<std::string> events;
    for (const AuditRow& row :
         *store->ListAudit(tenant, "", 0, std::numeric_limits<int64_t>::max(), 1000)) {
      events.push_back(row.event + " " + row.outcome);
    }
    return events;
  }
};

TEST_CASE("UserBook: a session says who calls, also after a restart", "[auth]") {
  BookFixture f;
  const std::string session = f.SignIn("ada");
  const absl::StatusOr<Caller> caller = f.ring.AuthenticateSession(session);
  REQUIRE(caller.ok());
  CHECK(caller->key_id == "user:" + f.UserOf(session).user_id);
  CHECK(caller->tenant_id == "t1");
  CHECK(caller->scopes.HasAny(Scope::kTrain));
  CHECK_FALSE(caller->scopes.HasAny(Scope::kAdmin));
  CHECK(f.ring.FindCaller(caller->key_id)->tenant_id == "t1");

  KeyRing restarted(*f.store, f.clock);
  REQUIRE(restarted.Refresh().ok());
  CHECK(restarted.AuthenticateSession(session)->key_id == caller->key_id);
  // A session is no API key, and the reverse.
  CHECK(ErrorCode(f.ring.Authenticate(session).status()) == "unauthenticated");
  CHECK(ErrorCode(f.ring.AuthenticateSession("lathe-session-x").status()) == "bad_session");
}

TEST_CASE("UserBook: the store holds no session's secret", "[auth]") {
  BookFixture f;
  const std::string session = f.SignIn("ada");
  const StoredUsers stored = *f.store->ListUsers(0);
  REQUIRE(stored.sessions.size() == 1);
  CHECK(stored.sessions[0].session_hash.size() == 64);
  CHECK(session.find(stored.sessions[0].session_hash) == std::string::npos);
}

TEST_CASE("UserBook: a session ends at its time, and earlier without use", "[auth]") {
  BookFixture f;
  const std::string session = f.SignIn("ada");
  for (int hour = 1; hour < 12; ++hour) {
    f.clock.Advance(absl::Hours(1));
    CHECK(f.book.Find(session));
  }
  f.clock.Advance(absl::Hours(1));
  CHECK_FALSE(f.book.Find(session));
  const std::string idle = f.SignIn("ada");
  f.clock.Advance(absl::Hours(2));
  CHECK_FALSE(f.book.Find(idle));
  // The next sign-in removes the rows of both.
  f.SignIn("bob");
  CHECK(f.store->ListUsers(0)->sessions.size() == 1);
}

TEST_CASE("UserBook: a sign-out ends one session, a disabled user has none", "[auth]") {
  BookFixture f;
  const std::string first = f.SignIn("ada");
  const std::string second = f.SignIn("ada");
  REQUIRE(f.book.End(f.book.Find(first)->session, {"user:x", "t1"}, "user_sign_out").ok());
  CHECK_FALSE(f.book.Find(first));
  CHECK(f.book.Find(second));
  const UserRow user = f.UserOf(second);
  REQUIRE(f.book.Update(user.user_id, {.disabled = true}, {"admin", "t1"}).ok());
  CHECK_FALSE(f.book.Find(second));
  CHECK_FALSE(f.ring.FindCaller("user:" + user.user_id).ok());
  const auto refused = f.book.BeginForUser(f.Person("ada"), UserRole::kMember, "t1", kBrowser);
  CHECK(ErrorCode(refused.status()) == "user_disabled");
  CHECK(f.store->ListUsers(0)->sessions.empty());
  CHECK(f.Events("t1") == std::vector<std::string>{"user_sign_in ok", "user_sign_in ok",
                                                   "user_sign_out ok", "user_disable ok"});
}

TEST_CASE("UserBook: a bound role goes before the role map, in its tenant alone", "[auth]") {
  BookFixture f;
  const UserRow user = f.UserOf(f.SignIn("ada", UserRole::kViewer));
  REQUIRE(f.book.Update(user.user_id, {.bound_role = "admin"}, {"boss", "t1"})->role == "admin");
  CHECK(f.UserOf(f.SignIn("ada", UserRole::kViewer)).role == "admin");
  CHECK(f.UserOf(f.SignIn("ada", UserRole::kViewer, "t2")).role == "viewer");
  REQUIRE(f.book.Refresh().ok());
  const UserRow again = f.UserOf(f.SignIn("ada", UserRole::kViewer));
  CHECK(again.role == "admin");
  CHECK(f.book.HasBoundRole(again));
  REQUIRE(f.book.Update(again.user_id, {.bound_role = ""}, {"boss", "t1"}).ok());
  CHECK(f.UserOf(f.SignIn("ada", UserRole::kViewer)).role == "viewer");
  CHECK(f.store->ListUsers(0)->bindings.empty());
}

TEST_CASE("UserBook: a sign-in with another role or tenant ends the sessions before it", "[auth]") {
  BookFixture f;
  const std::string viewer = f.SignIn("ada", UserRole::kViewer);
  const std::string again = f.SignIn("ada", UserRole::kViewer);
  CHECK(f.book.Find(viewer));
  const std::string admin = f.SignIn("ada", UserRole::kAdmin);
  CHECK_FALSE(f.book.Find(viewer));
  CHECK_FALSE(f.book.Find(again));
  const std::string elsewhere = f.SignIn("ada", UserRole::kAdmin, "t2");
  CHECK_FALSE(f.book.Find(admin));
  CHECK(f.ring.AuthenticateSession(elsewhere)->tenant_id == "t2");
}

TEST_CASE("UserBook: a user has so many sessions, the oldest ends first", "[auth]") {
  BookFixture f;
  std::vector<std::string> sessions;
  for (size_t i = 0; i <= UserBook::kMaxSessionsOfOne; ++i) {
    f.clock.Advance(absl::Seconds(10));
    sessions.push_back(f.SignIn("ada"));
  }
  CHECK_FALSE(f.book.Find(sessions[0]));
  CHECK(f.book.Find(sessions[1]));
  const std::string user_id = f.UserOf(sessions[1]).user_id;
  const std::vector<UserSessionRow> rows = f.book.SessionsOf(user_id);
  REQUIRE(rows.size() == UserBook::kMaxSessionsOfOne);
  CHECK(rows[0].created_at > rows[1].created_at);
}

TEST_CASE("UserBook: no tenant takes the sessions of the others", "[auth]") {
  BookFixture f;
  UserBook book(*f.store, f.clock, {.max_sessions_of_tenant = 3});
  const auto sign_in = [&](const std::string& subject, const std::string& tenant) {
    return book.BeginForUser(BookFixture::Person(subject), UserRole::kMember, tenant, kBrowser);
  };
  const auto first = sign_in("a", "t1");
  REQUIRE(first.ok());
  REQUIRE(sign_in("b", "t1").ok());
  REQUIRE(sign_in("c", "t1").ok());
  const absl::Status refused = sign_in("d", "t1").status();
  CHECK(ErrorCode(refused) == "too_many_sessions");
  CHECK(refused.message() == "the tenant has 3 sessions, limit is 3");
  CHECK(sign_in("e", "t2").ok());
  CHECK(book.BeginForTicket("t1", kBrowser).ok());

  // The bound is counted anew after a restart, and an ended session makes room.
  UserBook restarted(*f.store, f.clock, {.max_sessions_of_tenant = 3});
  REQUIRE(restarted.Refresh().ok());
  const auto again = [&] {
    return restarted.BeginForUser(BookFixture::Person("d"), UserRole::kMember, "t1", kBrowser);
  };
  CHECK(ErrorCode(again().status()) == "too_many_sessions");
  REQUIRE(restarted.End(first->row, {.id = "key", .tenant_id = "t1"}, "user_sign_out").ok());
  CHECK(again().ok());
}

TEST_CASE("UserBook: sign-ins of one user have a pace", "[auth]") {
  BookFixture f;
  for (int64_t i = 0; i <= UserBook::kMaxSignInsPerMinute; ++i) f.SignIn("ada");
  const auto refused = f.book.BeginForUser(f.Person("ada"), UserRole::kMember, "t1", kBrowser);
  CHECK(ErrorCode(refused.status()) == "too_many_sign_ins");
  CHECK(RetryAfter(refused.status()) > absl::ZeroDuration());
  f.SignIn("bob");
  f.clock.Advance(absl::Minutes(1));
  f.SignIn("ada");
}

TEST_CASE("UserBook: a session of a key ends with the key", "[auth]") {
  BookFixture f;
  const KeyRing::NewKey key = *f.ring.Create("default", "k", {"read"}, absl::Hours(1));
  const auto session = f.book.BeginForKey(*f.ring.Find(key.key_id), UserRole::kViewer, kBrowser);
  REQUIRE(session.ok());
  const absl::StatusOr<Caller> caller = f.ring.AuthenticateSession(session->text);
  REQUIRE(caller.ok());
  CHECK(caller->key_id == key.key_id);
  CHECK(caller->scopes.Words() == std::vector<std::string>{"read"});
  CHECK(session->row.expires_at == key.expires_at);
  REQUIRE(f.ring.Revoke(key.key_id).ok());
  CHECK(ErrorCode(f.ring.AuthenticateSession(session->text).status()) == "bad_session");
}

TEST_CASE("UserBook: a ticket works once, within a minute", "[auth]") {
  BookFixture f;
  const std::string ticket = *f.book.MakeTicket();
  CHECK(f.book.UseTicket(ticket).ok());
  CHECK(ErrorCode(f.book.UseTicket(ticket)) == "bad_ticket");
  const std::string late = *f.book.MakeTicket();
  f.clock.Advance(UserBook::kTicketLifetime);
  CHECK_FALSE(f.book.UseTicket(late).ok());
  CHECK_FALSE(f.book.UseTicket("").ok());
  for (size_t i = 0; i < UserBook::kMaxTickets; ++i) CHECK(f.book.MakeTicket().ok());
  CHECK(ErrorCode(f.book.MakeTicket().status()) == "too_many_tickets");
}

TEST_CASE("UserBook: equal refusals are one entry of the audit log", "[auth]") {
  BookFixture f;
  for (int i = 0; i < 3; ++i) f.book.RecordRefusal(f.Person("eve"), "t1", "unmapped");
  f.book.RecordRefusal(f.Person("mallory"), "t1", "unmapped");
  CHECK(f.Events("t1").size() == 2);
  f.clock.Advance(absl::Minutes(1));
  f.book.RecordRefusal(f.Person("eve"), "t1", "unmapped");
  CHECK(f.Events("t1").back() == "user_sign_in unmapped");
  CHECK(f.Events("t1").size() == 3);
}

}  // namespace
}  // namespace lathe::engine
