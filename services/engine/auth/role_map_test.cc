#include "services/engine/auth/role_map.h"

#include <catch2/catch.hpp>

#include "libs/common/errors.h"

namespace lathe::engine {
namespace {

Identity PersonWithEmail(const std::string& email, bool is_verified) {
  Identity person;
  person.email = email;
  person.is_email_verified = is_verified;
  return person;
}

// Returns "role@tenant", or "none".
std::string Mapped(const std::vector<std::string>& lines, const Identity& person) {
  const absl::StatusOr<RoleMap> map = RoleMap::Parse(lines);
  INFO(map.status());
  REQUIRE(map.ok());
  const RoleRule* const rule = map->Find(person);
  return rule == nullptr ? "none" : UserRoleWord(rule->role) + "@" + rule->tenant;
}

TEST_CASE("RoleMap: the first line that fits decides", "[auth]") {
  const std::vector<std::string> lines = {"groups=ops:operator", "groups=urn:lab:admin@lab",
                                          "groups=*:viewer"};
  Identity person;
  CHECK(Mapped(lines, person) == "none");
  person.claims["groups"] = {"other"};
  CHECK(Mapped(lines, person) == "viewer@default");
  person.claims["groups"] = {"other", "urn:lab"};
  CHECK(Mapped(lines, person) == "admin@lab");
  person.claims["groups"] = {"urn:lab", "ops"};
  CHECK(Mapped(lines, person) == "operator@default");
  CHECK(Mapped({}, person) == "none");
}

TEST_CASE("RoleMap: an e-mail address counts only if it is verified", "[auth]") {
  const std::vector<std::string> lines = {"email=Ada@Lab.example:admin",
                                          "email_domain=lab.example:member"};
  CHECK(Mapped(lines, PersonWithEmail("ada@lab.example", true)) == "admin@default");
  CHECK(Mapped(lines, PersonWithEmail("Bob@LAB.example", true)) == "member@default");
  CHECK(Mapped(lines, PersonWithEmail("ada@lab.example", false)) == "none");
  CHECK(Mapped(lines, PersonWithEmail("eve@lab.example.evil.example", true)) == "none");
  CHECK(Mapped(lines, PersonWithEmail("eve@evil.example@x", true)) == "none");
  CHECK(Mapped(lines, PersonWithEmail("lab.example", true)) == "none");
  // Claims of these names do not stand in for the address.
  Identity person = PersonWithEmail("", false);
  person.claims["email"] = {"ada@lab.example"};
  person.claims["email_domain"] = {"lab.example"};
  CHECK(Mapped(lines, person) == "none");
}

TEST_CASE("RoleMap: a line that is no rule is refused by its text", "[auth]") {
  const std::string bad = GENERATE("", "groups", "groups=a", "=a:admin", "groups=:admin",
                                   "groups=a:admin@", "groups:admin");
  INFO(bad);
  const absl::Status refused = RoleMap::Parse({bad}).status();
  CHECK(refused.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(refused.message()), Catch::Contains("'" + bad + "'"));
}

TEST_CASE("RoleMap: an unknown role is refused with the known ones", "[auth]") {
  const absl::Status refused = RoleMap::Parse({"groups=a:root"}).status();
  CHECK(std::string(refused.message()) ==
        "role_map is 'root', expected viewer, member, admin or operator");
}

TEST_CASE("UserRole: scopes follow from roles, and roles from scopes", "[auth]") {
  CHECK(ScopesOf(UserRole::kViewer).Words() == std::vector<std::string>{"read"});
  CHECK_FALSE(ScopesOf(UserRole::kMember).HasAny(Scope::kAdmin));
  CHECK(ScopesOf(UserRole::kOperator).HasAny(Scope::kAdmin));
  CHECK(RoleOf(Scope::kRead) == UserRole::kViewer);
  CHECK(RoleOf(Scope::kSample) == UserRole::kMember);
  CHECK(RoleOf(Scope::kTrain | Scope::kAdmin) == UserRole::kAdmin);
  CHECK(RoleOf(Scopes()) == UserRole::kViewer);
}

}  // namespace
}  // namespace lathe::engine
