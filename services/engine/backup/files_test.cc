#include "services/engine/backup/files.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "services/engine/backup/testing/other_user.h"
#include "services/engine/store/testing/temp_dir.h"

namespace lathe::engine {
namespace {

namespace fs = std::filesystem;

void Make(const fs::path& file) {
  fs::create_directories(file.parent_path());
  std::ofstream(file) << file.filename().string();
}

TEST_CASE("BackupFiles: a list has all files and not those of the file system", "[backup]") {
  const TempDir dir;
  Make(dir.path() / "b" / "two");
  Make(dir.path() / "a");
  Make(dir.path() / "b" / "lost+found");
  Make(dir.path() / "lost+found" / "theirs");
  const auto files = ListFiles(dir.path());
  REQUIRE(files.ok());
  CHECK(*files == std::vector<std::string>{"a", "b/lost+found", "b/two"});
  CHECK(SyncTree(dir.path()).ok());
  CHECK(absl::IsNotFound(ListFiles(dir.path() / "none").status()));
}

TEST_CASE("BackupFiles: a folder that cannot be listed is neither empty nor listed in part",
          "[backup]") {
  const TempDir dir;
  Make(dir.path() / "a");
  CHECK_FALSE(FirstEntry(dir.path() / "a", {}).ok());
  CHECK(*FirstEntry(dir.path() / "none", {}) == "");
  CHECK(*FirstEntry(dir.path(), {"a"}) == "");
  CHECK(*FirstEntry(dir.path(), {"b"}) == "a");
  Make(dir.path() / "closed" / "file");
  const OtherUser user(dir.path());
  fs::permissions(dir.path() / "closed", fs::perms::none);
  CHECK_FALSE(FirstEntry(dir.path() / "closed", {}).ok());
  CHECK(absl::IsPermissionDenied(ListFiles(dir.path()).status()));
  CHECK_FALSE(SyncTree(dir.path()).ok());
  CHECK_FALSE(MoveFiles(dir.path() / "closed", dir.path() / "moved").ok());
  fs::permissions(dir.path() / "closed", fs::perms::owner_all);
}

TEST_CASE("BackupFiles: an unreadable file is told from one that is missing", "[backup]") {
  // Its first page is mapped nowhere, so a read gives EIO.
  CHECK(absl::IsDataLoss(DigestFile("/proc/self", "mem").status()));
  CHECK(absl::IsNotFound(DigestFile("/proc/self", "none").status()));
  const TempDir dir;
  CHECK(absl::IsDataLoss(CopyFile("/proc/self/mem", dir.path() / "copy").status()));
  CHECK_FALSE(fs::exists(dir.path() / "copy"));
  Make(dir.path() / "closed");
  const OtherUser user(dir.path());
  fs::permissions(dir.path() / "closed", fs::perms::none);
  CHECK(absl::IsPermissionDenied(DigestFile(dir.path(), "closed").status()));
  CHECK(absl::IsPermissionDenied(CopyFile(dir.path() / "closed", dir.path() / "copy").status()));
  // An error of the target is none of the source.
  const absl::Status status = CopyFile(dir.path() / "closed", "/proc/none").status();
  CHECK_FALSE((status.ok() || absl::IsDataLoss(status)));
}

TEST_CASE("BackupFiles: a file in a folder that this process may not enter is not missing",
          "[backup]") {
  const TempDir dir;
  Make(dir.path() / "closed" / "file");
  const OtherUser user(dir.path());
  fs::permissions(dir.path() / "closed", fs::perms::none);
  const absl::Status status =
      CopyFile(dir.path() / "closed" / "file", dir.path() / "copy").status();
  fs::permissions(dir.path() / "closed", fs::perms::owner_all);
  CHECK(absl::IsPermissionDenied(status));
}

}  // namespace
}  // namespace lathe::engine
