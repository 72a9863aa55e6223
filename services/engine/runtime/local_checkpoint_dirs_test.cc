#include "services/engine/runtime/local_checkpoint_dirs.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>

namespace lathe::engine {
namespace {

namespace fs = std::filesystem;

const std::string kNamed = "c" + std::string(32, '1');
const std::string kUnnamed = "c" + std::string(32, '2');
constexpr char kForeign[] = "lost+found";
const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);

struct CheckpointDirsFixture {
  CheckpointDirsFixture() {
    std::string name = (fs::temp_directory_path() / "checkpoint_dirs.XXXXXX").string();
    root = mkdtemp(name.data());
    for (const std::string& dir : {kNamed, kUnnamed, std::string(kForeign)}) Make(dir);
  }
  ~CheckpointDirsFixture() { fs::remove_all(root); }

  void Make(const std::string& dir) {
    fs::create_directory(root / dir);
    std::ofstream(root / dir / "weights") << "bytes";
  }
  bool Has(const fs::path& dir) const { return fs::exists(root / dir / "weights"); }

  fs::path root;
};

const fs::path kInTrash = fs::path(LocalCheckpointDirs::kTrash) / kUnnamed;

TEST_CASE("CheckpointDirs: what no row names goes to the trash and stays there for its time",
          "[runtime]") {
  CheckpointDirsFixture f;
  LocalCheckpointDirs dirs(f.root, absl::Hours(7 * 24));
  dirs.ListAtStart();
  const std::string later = "c" + std::string(32, '3');
  f.Make(later);  // a save that began after the start
  dirs.KeepOnly({kNamed});
  dirs.DoWork(kNow);
  CHECK(f.Has(kNamed));
  CHECK(f.Has(later));
  CHECK(f.Has(kForeign));
  CHECK_FALSE(f.Has(kUnnamed));
  CHECK(f.Has(kInTrash));

  dirs.DoWork(kNow + absl::Hours(7 * 24));
  CHECK(f.Has(kInTrash));
  dirs.DoWork(kNow + absl::Hours(7 * 24 + 1));
  CHECK_FALSE(fs::exists(f.root / kInTrash));
}

TEST_CASE("CheckpointDirs: a later start finds the trash as it was", "[runtime]") {
  CheckpointDirsFixture f;
  {
    LocalCheckpointDirs dirs(f.root, absl::Hours(2));
    dirs.ListAtStart();
    dirs.KeepOnly({kNamed});
    dirs.DoWork(kNow);
  }
  LocalCheckpointDirs dirs(f.root, absl::Hours(2));
  dirs.ListAtStart();
  dirs.KeepOnly({kNamed});
  dirs.DoWork(kNow + absl::Hours(1));
  CHECK(f.Has(kInTrash));
  dirs.DoWork(kNow + absl::Hours(3));
  CHECK_FALSE(fs::exists(f.root / kInTrash));
}

TEST_CASE("CheckpointDirs: a deleted checkpoint goes at once", "[runtime]") {
  CheckpointDirsFixture f;
  LocalCheckpointDirs dirs(f.root, absl::Hours(2));
  dirs.Delete(kUnnamed);
  dirs.Delete("");
  dirs.DoWork(kNow);
  CHECK_FALSE(fs::exists(f.root / kUnnamed));
  CHECK_FALSE(f.Has(kInTrash));
  CHECK(f.Has(kNamed));
}

TEST_CASE("CheckpointDirs: a folder that cannot be moved stays where it is", "[runtime]") {
  CheckpointDirsFixture f;
  fs::create_directory(f.root / LocalCheckpointDirs::kTrash);
  f.Make(kInTrash.string());  // the name is taken
  LocalCheckpointDirs dirs(f.root, absl::Hours(2));
  dirs.ListAtStart();
  dirs.KeepOnly({kNamed});
  dirs.DoWork(kNow);
  CHECK(f.Has(kUnnamed));
}

}  // namespace
}  // namespace lathe::engine
