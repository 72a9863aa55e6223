#include "services/engine/backup/pins.h"

#include <catch2/catch.hpp>
#include <fstream>

#include "libs/common/digest/sha256.h"
#include "services/engine/backup/testing/other_user.h"
#include "services/engine/store/testing/temp_dir.h"

namespace lathe::engine {
namespace {

namespace fs = std::filesystem;
using Paths = std::vector<std::string>;

constexpr char kManifest[] =
    R"({"files":[{"name":"weights","size_bytes":5,"sha256":"a"},{"name":"z","size_bytes":1,"sha256":"b"}]})";

// A data directory with a checkpoint `one`, and a body `b`.
struct DataDir {
  DataDir() {
    fs::create_directories(one);
    fs::create_directory(dir.path() / "bodies");
    std::ofstream(dir.path() / "bodies" / "b") << "body";
    std::ofstream(one / "weights") << "12345";
    std::ofstream(one / "z") << "z";
    std::ofstream(one / "manifest.json") << kManifest;
  }

  const TempDir dir;
  const fs::path one = dir.path() / "checkpoints" / "one";
  const NeededFiles needed = {.dirs = {{.dir = "one", .manifest_sha256 = Sha256Hex(kManifest)}},
                              .bodies = {"b"}};
};

TEST_CASE("Pins: a checkpoint is linked with all files that its manifest lists", "[backup]") {
  const DataDir data;
  absl::StatusOr<Pins> pins = Pins::Take(data.dir.path());
  REQUIRE(pins.ok());
  CHECK(pins->Link(data.needed)->empty());
  CHECK(pins->files() == Paths{"checkpoints/one/manifest.json", "checkpoints/one/weights",
                               "checkpoints/one/z", "bodies/b"});
  CHECK(fs::hard_link_count(data.one / "weights") == 2);
  CHECK(absl::IsFailedPrecondition(Pins::Take(data.dir.path()).status()));
}

TEST_CASE("Pins: a checkpoint of which a part is gone is missing", "[backup]") {
  const DataDir data;
  absl::StatusOr<Pins> pins = Pins::Take(data.dir.path());
  REQUIRE(pins.ok());
  fs::remove(data.one / "weights");
  CHECK(*pins->Link(data.needed) == Paths{"checkpoints/one/weights"});
  // The other file stays for the report.
  CHECK(fs::exists(pins->root() / "checkpoints" / "one" / "z"));
  std::ofstream(data.one / "weights") << "123";
  CHECK(*pins->Link(data.needed) == Paths{"checkpoints/one/weights"});
  std::ofstream(data.one / "weights") << "12345";
  CHECK(pins->Link(data.needed)->empty());
  fs::remove_all(pins->root() / "checkpoints" / "one");
  fs::remove(data.one / "manifest.json");
  CHECK(*pins->Link(data.needed) == Paths{"checkpoints/one"});
  CHECK_FALSE(fs::exists(pins->root() / "checkpoints" / "one"));
  NeededFiles not_yet = data.needed;
  not_yet.dirs[0].must_exist = false;
  CHECK(pins->Link(not_yet)->empty());
}

TEST_CASE("Pins: what went away while a view was made is linked already", "[backup]") {
  const DataDir data;
  absl::StatusOr<Pins> pins = Pins::Take(data.dir.path());
  REQUIRE(pins.ok());
  fs::create_directory(data.dir.path() / "checkpoints" / "unfinished");
  CHECK(pins->LinkPresent().ok());
  fs::remove_all(data.one);
  fs::remove(data.dir.path() / "bodies" / "b");
  CHECK(pins->Link(data.needed)->empty());
  CHECK_FALSE(fs::exists(pins->root() / "checkpoints" / "unfinished"));
  CHECK_FALSE(fs::exists(pins->root() / "checkpoints" / "backup"));
  // Links to what is not needed go.
  CHECK(pins->Link({})->empty());
  CHECK(fs::is_empty(pins->root() / "checkpoints"));
  CHECK(fs::is_empty(pins->root() / "bodies"));
}

TEST_CASE("Pins: a checkpoint that this process may not read is no missing one", "[backup]") {
  const DataDir data;
  absl::StatusOr<Pins> pins = Pins::Take(data.dir.path());
  REQUIRE(pins.ok());
  const OtherUser user(data.dir.path());
  fs::permissions(data.one, fs::perms::none);
  const auto missing = pins->Link(data.needed);
  fs::permissions(data.one, fs::perms::owner_all);
  CHECK(absl::IsPermissionDenied(missing.status()));
}

TEST_CASE("Pins: folders that cannot be listed do not look as if all files were lost", "[backup]") {
  const DataDir data;
  const absl::StatusOr<Pins> pins = Pins::Take(data.dir.path());
  REQUIRE(pins.ok());
  CHECK(pins->LinkPresent().ok());
  fs::remove_all(data.dir.path() / "bodies");
  CHECK(pins->LinkPresent().ok());
  std::ofstream(data.dir.path() / "bodies") << "no folder";
  CHECK_FALSE(pins->LinkPresent().ok());
  fs::remove(data.dir.path() / "bodies");
  const OtherUser user(data.dir.path());
  fs::permissions(data.dir.path() / "checkpoints", fs::perms::owner_exec);
  const absl::Status status = pins->LinkPresent();
  fs::permissions(data.dir.path() / "checkpoints", fs::perms::owner_all);
  CHECK(absl::IsPermissionDenied(status));
}

}  // namespace
}  // namespace lathe::engine
