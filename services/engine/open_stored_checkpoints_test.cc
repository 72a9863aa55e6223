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

const std::string kOneDir = "c" + std::string(32, '1');
const std::string kOtherDir = "c" + std::string(32, '2');

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
  void CopyIn(const std::string& dir) const {
    const fs::path folder = root / "objects" / "checkpoints" / dir;
    fs::create_directories(folder);
    std::ofstream(folder / "manifest.json") << "{}\n";
  }
  std::string Objects() const { return "file:" + (root / "objects").string(); }

  fs::path root;
  std::unique_ptr<SqliteStore> store;
};

// A database with the secrets of another one. It does not name directories while `is_away`.
class DatabaseOfTest : public SqlStore {
 public:
  explicit DatabaseOfTest(SqliteStore& secrets) : secrets_(secrets) {}
  absl::StatusOr<bool> HasSecret(const std::string& name) override {
    return secrets_.HasSecret(name);
  }
  absl::StatusOr<std::string> Secret(const std::string& name) override {
    return secrets_.Secret(name);
  }
  absl::StatusOr<std::vector<std::string>> NamedDirs() override {
    if (is_away) return absl::UnavailableError("the database does not answer");
    return secrets_.NamedDirs();
  }
  absl::StatusOr<StoredState> Load(int64_t) override { return kUnused; }
  absl::Status Commit(int64_t, std::span<const Write>, std::span<const Blob>) override {
    return kUnused;
  }
  absl::Status PurgePiece(int64_t, PurgePass&) override { return kUnused; }
  absl::Status PutLargeBody(const std::string&, const std::string&) override { return kUnused; }
  void DiscardLargeBody(const std::string&) override {}
  absl::StatusOr<std::string> ReadBody(const std::string&) override { return kUnused; }
  bool is_away = false;

 private:
  absl::Status Read(const Work&) override { return kUnused; }
  absl::Status Change(const Work&) override { return kUnused; }

  const absl::Status kUnused = absl::UnimplementedError("not used");
  SqliteStore& secrets_;
};

void CommitCheckpoint(SqliteStore& store, const std::string& dir) {
  const int64_t term = store.TakeLeadership()->term;
  CheckpointRow row{.tinker_path = "tinker://m/weights/" + dir, .model_id = "m", .tenant_id = "t"};
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
  CommitCheckpoint(*one.store, kOneDir);
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
  CommitCheckpoint(*one.store, kOneDir);
  CommitCheckpoint(*one.store, kOtherDir);
  const absl::Status empty = one.Open(one.Objects()).status();
  CHECK(absl::IsFailedPrecondition(empty));
  CHECK_THAT(std::string(empty.message()), Catch::Contains("lacks 2 of the 2"));
  one.CopyIn(kOneDir);
  const absl::Status broken_off = one.Open(one.Objects()).status();
  CHECK(absl::IsFailedPrecondition(broken_off));
  CHECK_THAT(std::string(broken_off.message()), Catch::Contains("checkpoints/" + kOtherDir));
  CHECK(one.Open("").ok());  // no object store was used
  one.CopyIn(kOtherDir);
  const auto moved = one.Open(one.Objects());
  REQUIRE(moved.ok());
  CHECK(moved->reads->CheckOwner(moved->store_id).ok());
}

TEST_CASE("Stored checkpoints: a move goes on after a store that took no writes", "[engine]") {
  const Installation one;
  CommitCheckpoint(*one.store, kOneDir);
  one.CopyIn(kOneDir);
  const fs::path in_the_way = one.root / "objects" / ".writing";
  std::ofstream(in_the_way) << "a file where the store writes";
  const auto waits = one.Open(one.Objects());
  REQUIRE(waits.ok());  // the engine serves, and ends before the store takes writes again
  REQUIRE_FALSE(fs::exists(one.root / "objects" / "LATHE_STORE"));
  fs::remove(in_the_way);
  const auto moved = one.Open(one.Objects());
  INFO(moved.status());
  REQUIRE(moved.ok());
  CHECK(moved->store_id == waits->store_id);
  CHECK(moved->reads->CheckOwner(moved->store_id).ok());
}

TEST_CASE("Stored checkpoints: a move goes on after a typo", "[engine]") {
  const Installation one;
  CommitCheckpoint(*one.store, kOneDir);
  one.CopyIn(kOneDir);
  const Installation other;
  REQUIRE(other.Open(other.Objects()).ok());
  CHECK(absl::IsFailedPrecondition(one.Open(other.Objects()).status()));
  CHECK(one.Open(one.Objects()).ok());
}

TEST_CASE("Stored checkpoints: a database that fails is no object store that is away", "[engine]") {
  const Installation one;
  DatabaseOfTest database(*one.store);
  StorageOptions options;
  options.files = one.Objects();
  CHECK(OpenStoredCheckpoints(options, one.Folder(), database).ok());
  fs::remove(one.root / "objects" / "LATHE_STORE");
  database.is_away = true;
  const absl::Status failed = OpenStoredCheckpoints(options, one.Folder(), database).status();
  CHECK(absl::IsUnavailable(failed));
  CHECK_THAT(std::string(failed.message()), Catch::Contains("database"));
}

}  // namespace
}  // namespace lathe::engine
