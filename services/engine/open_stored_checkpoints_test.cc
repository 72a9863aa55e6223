#include "services/engine/open_stored_checkpoints.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

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

}  // namespace
}  // namespace lathe::engine
