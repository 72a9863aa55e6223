#include "tools/lathe/commands/find_checkpoint.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "libs/common/errors.h"
#include "libs/common/files/copy_name.h"
#include "libs/common/object_store/directory_store.h"
#include "tools/lathe/testing/temp_dir.h"

namespace lathe::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kPath[] = "tinker://s:train:0/weights/final";

fs::path Add(const fs::path& dir, const std::string& path, int64_t created_at) {
  fs::create_directories(dir);
  std::ofstream(dir / "manifest.json")
      << absl::StrCat(R"({"tinker_path": ")", path, R"(", "created_at_ns": )", created_at, "}");
  return dir;
}

TEST_CASE("A checkpoint is found by its path, the newest of two", "[export]") {
  const TempDir dir;
  Add(dir.path() / "c1", kPath, 5);
  const fs::path newest = Add(dir.path() / "c2", kPath, 7);
  Add(dir.path() / "c3", "tinker://s:train:0/sampler_weights/final", 9);
  fs::create_directories(dir.path() / "tmp");
  CHECK(*FindCheckpoint(kPath, dir.path()) == newest);
}

TEST_CASE("A copy is found by its own path, its source by its", "[export]") {
  constexpr char kCopyPath[] = "tinker://copy:train:0/weights/final";
  const TempDir dir;
  const fs::path source = Add(dir.path() / "c1", kPath, 5);
  const fs::path copy = Add(dir.path() / "c2", kPath, 5);
  std::ofstream(copy / kCopyNameFile) << kCopyPath;
  CHECK(*FindCheckpoint(kPath, dir.path()) == source);
  CHECK(*FindCheckpoint(kCopyPath, dir.path()) == copy);
}

TEST_CASE("A checkpoint in the trash of an object store is not found", "[export]") {
  const TempDir dir;
  Add(dir.path() / "checkpoints" / "c1", kPath, 5);
  Add(dir.path() / "checkpoints" / "c2", kPath, 7);
  CheckpointObjects objects(std::make_shared<DirectoryStore>(dir.path()));
  CHECK(*FindStoredCheckpoint(kPath, objects) == "c2");
  REQUIRE(objects.MarkAsTrash("c2").ok());
  CHECK(*FindStoredCheckpoint(kPath, objects) == "c1");
}

TEST_CASE("A checkpoint is found by its folder", "[export]") {
  const TempDir dir;
  const fs::path folder = Add(dir.path() / "c1", kPath, 5);
  CHECK(*FindCheckpoint(folder.string(), "/nonexistent") == fs::canonical(folder));
}

TEST_CASE("A checkpoint that is not there is named", "[export]") {
  const TempDir dir;
  for (const std::string& name : {std::string(kPath), dir.path().string()}) {
    const absl::Status status = FindCheckpoint(name, dir.path()).status();
    CHECK(ErrorCode(status) == "checkpoint_missing");
    CHECK_THAT(std::string(status.message()), Catch::Contains(name));
  }
}

}  // namespace
}  // namespace lathe::cli
