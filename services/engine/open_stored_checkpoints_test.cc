#include "services/engine/open_stored_checkpoints.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "services/engine/store/sqlite/sqlite_store.h"

namespace lathe::engine {
namespace {

namespace fs = std::filesystem;

// An installation on this machine, with a directory as its object store.
struct Installation {
  Installation() {
    std::string name = (fs::temp_directory_path() / "installation.XXXXXX").string();
    root = mkdtemp(name.data());
    fs::create_directories(Folder());
    store = *SqliteStore::Open({.database = root / "lathe.db", .bodies_dir = root / "bodies"});
  }
  ~Installation() {
    store.reset();
    fs::remove_all(root);
  }

  fs::path Folder() const { return root / "checkpoints"; }
  absl::StatusOr<StoredCheckpoints> Open(const std::string& files) const {
    StorageOptions options;
    options.files = files;
    return OpenStoredCheckpoints(options, Folder(), *store);
  }
  std::string Objects() const { return "file:" + (root / "objects").string(); }

  fs::path root;
  std::unique_ptr<SqliteStore> store;
};

void CommitCheckpoint(SqliteStore& store, const std::string& dir) {
  const int64_t term = store.TakeLeadership()->term;
  CheckpointRow row{.tinker_path = "tinker://m/weights/a", .model_id = "m", .tenant_id = "t"};
  row.dir = dir;
  REQUIRE(store.Commit(term, std::vector<Write>{PutCheckpoint{row}}, {}).ok());
}

TEST_CASE("Stored checkpoints: an engine without the option is refused once it was used",
          "[engine]") {
  const Installation one;
  CHECK(one.Open("").value().work == nullptr);
  const auto stored = one.Open(one.Objects());
  REQUIRE(stored.ok());
  CHECK(one.Open(one.Objects())->store_id == stored->store_id);
  const absl::Status refused = one.Open("").status();
  CHECK(absl::IsFailedPrecondition(refused));
  CHECK_THAT(std::string(refused.message()), Catch::StartsWith("storage.files is missing"));
}

TEST_CASE("Stored checkpoints: checkpoints in the data directory are not left behind", "[engine]") {
  const Installation one;
  fs::create_directory(one.Folder() / ("c" + std::string(32, '1')));
  const absl::Status refused = one.Open(one.Objects()).status();
  CHECK(absl::IsFailedPrecondition(refused));
  CHECK_THAT(std::string(refused.message()), Catch::Contains("has checkpoints"));
  CHECK(one.Open("").ok());  // no object store was used
}

TEST_CASE("Stored checkpoints: a place that lacks those of the database is refused", "[engine]") {
  const Installation one;
  REQUIRE(one.Open(one.Objects()).ok());
  const fs::path marker = one.root / "objects" / "LATHE_STORE";
  fs::remove(marker);
  CHECK(one.Open(one.Objects()).ok());  // no checkpoint can be missing
  CommitCheckpoint(*one.store, "c" + std::string(32, '1'));
  CHECK(one.Open(one.Objects()).ok());
  const absl::Status wrong = one.Open(one.Objects() + "/typo").status();
  CHECK(absl::IsFailedPrecondition(wrong));
  CHECK_THAT(std::string(wrong.message()), Catch::Contains("storage.files is wrong"));
  CHECK_FALSE(fs::exists(one.root / "objects" / "typo" / "LATHE_STORE"));
  fs::rename(marker, one.root / "moved");
  CHECK(absl::IsFailedPrecondition(one.Open(one.Objects()).status()));
  fs::rename(one.root / "moved", marker);  // as after a move of the whole place
  CHECK(one.Open(one.Objects()).ok());
}

TEST_CASE("Stored checkpoints: folders move to a place that nothing has claimed", "[engine]") {
  const Installation one;
  const std::string dir = "c" + std::string(32, '1');
  CommitCheckpoint(*one.store, dir);
  const absl::Status empty = one.Open(one.Objects()).status();
  CHECK(absl::IsFailedPrecondition(empty));
  CHECK_THAT(std::string(empty.message()), Catch::Contains("were not copied"));
  CHECK(one.Open("").ok());  // no object store was used
  fs::create_directories(one.root / "objects" / "checkpoints" / dir);
  std::ofstream(one.root / "objects" / "checkpoints" / dir / "manifest.json") << "{}\n";
  const auto moved = one.Open(one.Objects());
  REQUIRE(moved.ok());
  CHECK(moved->reads->CheckOwner(moved->store_id).ok());
}

}  // namespace
}  // namespace lathe::engine
