#include "services/engine/auth/admin_key.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>

#include "libs/common/api_key/api_key.h"
#include "services/engine/store/sqlite/sqlite_store.h"
#include "services/engine/store/testing/temp_dir.h"

namespace lathe::engine {
namespace {

struct AdminFixture {
  void Write(const std::string& text) const { std::ofstream(path) << text; }
  std::string Read() const {
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }
  bool IsAdmin(const std::string& key) const {
    const auto caller = ring.Authenticate(key);
    return caller.ok() && caller->scopes.HasAny(Scope::kAdmin);
  }

  TempDir dir;
  std::string path = dir.path() / "admin.key";
  std::unique_ptr<SqliteStore> store = *SqliteStore::Open(
      {.database = dir.path() / "lathe.db", .bodies_dir = dir.path() / "bodies"});
  FakeClock clock;
  KeyRing ring{*store, clock};
};

TEST_CASE("AdminKey: a key in the file is accepted once", "[auth]") {
  AdminFixture f;
  const std::string key = MakeApiKey().text;
  f.Write(key + "\n");
  REQUIRE(EnsureAdminKey(f.ring, f.path).ok());
  CHECK(f.IsAdmin(key));
  CHECK(f.ring.Authenticate(key)->tenant_name == "default");
  REQUIRE(EnsureAdminKey(f.ring, f.path).ok());
  CHECK(f.ring.List().size() == 1);
  // Another key in the file is another admin key; the first one lives until it is revoked.
  const std::string other = MakeApiKey().text;
  f.Write(other);
  REQUIRE(EnsureAdminKey(f.ring, f.path).ok());
  CHECK((f.IsAdmin(key) && f.IsAdmin(other)));
}

TEST_CASE("AdminKey: a missing file gets a new key, unless an operator's key lives", "[auth]") {
  AdminFixture f;
  REQUIRE(EnsureAdminKey(f.ring, f.path).ok());
  const std::string line = f.Read();
  CHECK(f.IsAdmin(line.substr(0, line.size() - 1)));
  struct stat found = {};
  stat(f.path.c_str(), &found);
  CHECK((found.st_mode & 0777) == 0600);
  unlink(f.path.c_str());
  REQUIRE(EnsureAdminKey(f.ring, f.path).ok());
  CHECK(f.Read().empty());
  CHECK(f.ring.List().size() == 1);
  REQUIRE(f.ring.Revoke(f.ring.List().front().row.key_id).ok());
  // A tenant's administrator does not operate the service.
  REQUIRE(f.ring.Create("lab", "ann", {"admin"}).ok());
  REQUIRE(EnsureAdminKey(f.ring, f.path).ok());
  CHECK(f.ring.List().size() == 3);
  CHECK_FALSE(f.Read().empty());
}

TEST_CASE("AdminKey: a crash between the file and the store leaves a file that is accepted",
          "[auth]") {
  AdminFixture f;
  REQUIRE(EnsureAdminKey(f.ring, f.path).ok());
  AdminFixture other;
  other.Write(f.Read());
  REQUIRE(EnsureAdminKey(other.ring, other.path).ok());
  CHECK(other.ring.List().size() == 1);
}

TEST_CASE("AdminKey: a revoked key stays revoked", "[auth]") {
  AdminFixture f;
  const std::string key = MakeApiKey().text;
  f.Write(key);
  REQUIRE(EnsureAdminKey(f.ring, f.path).ok());
  REQUIRE(f.ring.Revoke(*ParseKeyId(key)).ok());
  REQUIRE(EnsureAdminKey(f.ring, f.path).ok());
  CHECK_FALSE(f.IsAdmin(key));
  CHECK(f.Read() == key);
}

TEST_CASE("AdminKey: what is no admin key is refused without being shown", "[auth]") {
  AdminFixture f;
  CHECK(CheckAdminKeyFile(f.path).ok());
  const std::string ordinary = f.ring.Create("t", "k", {"train"})->text;
  const std::string wrong =
      GENERATE(as<std::string>{}, "", "\n", "hush-hush", "a\nb", std::string(70000, 'a'));
  f.Write(wrong);
  const absl::Status status = EnsureAdminKey(f.ring, f.path);
  CHECK(absl::IsInvalidArgument(status));
  CHECK(CheckAdminKeyFile(f.path) == status);
  CHECK_THAT(std::string(status.message()), Catch::Contains(f.path));
  CHECK_THAT(std::string(status.message()), !Catch::Contains("hush"));
  f.Write(ordinary);
  CHECK_THAT(std::string(EnsureAdminKey(f.ring, f.path).message()),
             Catch::Contains("has no scope admin"));
}

TEST_CASE("AdminKey: a folder that cannot be written to is named", "[auth]") {
  AdminFixture f;
  f.path = "/proc/none/admin.key";
  const absl::Status status = EnsureAdminKey(f.ring, f.path);
  CHECK(absl::IsInternal(status));
  CHECK_THAT(std::string(status.message()), Catch::Contains("/proc/none/admin.key"));
  CHECK(f.ring.List().empty());
}

}  // namespace
}  // namespace lathe::engine
