#include "services/engine/runtime/stored_checkpoint_dirs.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>

#include "absl/synchronization/notification.h"
#include "libs/common/digest/sha256.h"
#include "libs/common/object_store/directory_store.h"
#include "services/engine/runtime/local_checkpoint_dirs.h"

namespace lathe::engine {
namespace {

namespace fs = std::filesystem;

const std::string kOneDir = "c" + std::string(32, '1');
const std::string kOtherDir = "c" + std::string(32, '2');
const std::string kNewDir = "c" + std::string(32, '3');

// A store whose calls fail while `is_away` is true.
class SometimesAway : public DirectoryStore {
 public:
  using DirectoryStore::DirectoryStore;
  absl::Status Delete(const std::string& name) override {
    if (hangs) {
      if (!has_hung.HasBeenNotified()) has_hung.Notify();
      is_cancelled.WaitForNotification();
    }
    if (is_away || hangs) return absl::UnavailableError("away");
    return DirectoryStore::Delete(name);
  }
  absl::Status PutIfAbsent(const std::string& name, const std::string& text) override {
    if (is_full) return absl::ResourceExhaustedError("full");
    if (before_mark) before_mark(name);
    return DirectoryStore::PutIfAbsent(name, text);
  }
  absl::StatusOr<std::vector<ObjectInfo>> List(const std::string& prefix) override {
    if (is_away) return absl::UnavailableError("away");
    return DirectoryStore::List(prefix);
  }
  absl::StatusOr<std::string> GetText(const std::string& name, int64_t max_bytes) override {
    if (name == "LATHE_STORE" && !marker_failure.ok()) return marker_failure;
    return DirectoryStore::GetText(name, max_bytes);
  }
  void Cancel() override {
    if (!is_cancelled.HasBeenNotified()) is_cancelled.Notify();
  }
  bool is_away = false;
  bool is_full = false;
  absl::Status marker_failure;
  std::function<void(const std::string& name)> before_mark;
  bool hangs = false;  // calls end when they are cancelled
  absl::Notification has_hung;
  absl::Notification is_cancelled;
};

struct StoredFixture {
  StoredFixture() {
    std::string name = (fs::temp_directory_path() / "stored_dirs.XXXXXX").string();
    root = mkdtemp(name.data());
    store = std::make_shared<SometimesAway>(root / "objects");
    objects = std::make_shared<CheckpointObjects>(store);
    REQUIRE(objects->Claim("id").ok());
    for (const std::string& dir : {kOneDir, kOtherDir}) Publish(dir);
  }
  ~StoredFixture() { fs::remove_all(root); }

  void Publish(const std::string& dir) {
    const fs::path folder = root / dir;
    fs::create_directory(folder);
    std::ofstream(folder / "weights") << "bytes";
    std::ofstream(folder / "manifest.json")
        << R"({"files":[{"name":"weights","size_bytes":5,"sha256":")" << Sha256Hex("bytes")
        << "\"}]}";
    REQUIRE(objects->Publish(dir, folder).ok());
  }
  StoredCheckpoints Stored() const {
    return {.reads = objects, .work = objects, .copies = objects, .store_id = "id"};
  }
  bool Has(const std::string& dir) const {
    return store->Head("checkpoints/" + dir + "/weights").ok();
  }

  fs::path root;
  std::shared_ptr<SometimesAway> store;
  std::shared_ptr<CheckpointObjects> objects;
  const absl::Time now = absl::Now();
};

TEST_CASE("StoredCheckpointDirs: what no row names is marked, and deleted after its time",
          "[runtime]") {
  StoredFixture f;
  StoredCheckpointDirs dirs(f.Stored(), absl::Hours(7 * 24));
  dirs.ListAtStart();
  f.Publish(kNewDir);  // made after the listing
  dirs.KeepOnly({kOneDir});
  dirs.WorkOnce(f.now);
  CHECK(*dirs.ListTrash() == std::vector<std::string>{kOtherDir});
  CHECK(dirs.CheckInTrash(kOtherDir).ok());
  CHECK(absl::IsNotFound(dirs.CheckInTrash(kOneDir)));
  CHECK(absl::IsInvalidArgument(dirs.CheckInTrash("../x")));
  CHECK(*dirs.ReadTextInTrash(kOtherDir, "weights") == "bytes");
  dirs.WorkOnce(f.now + absl::Hours(6 * 24));
  CHECK(f.Has(kOtherDir));
  dirs.WorkOnce(f.now + absl::Hours(8 * 24));  // sees the mark
  dirs.WorkOnce(f.now + absl::Hours(8 * 24));  // deletes
  CHECK_FALSE(f.Has(kOtherDir));
  CHECK(dirs.ListTrash()->empty());
  CHECK(f.Has(kOneDir));
  CHECK(f.Has(kNewDir));
}

TEST_CASE("StoredCheckpointDirs: a start marks only what has no mark yet", "[runtime]") {
  StoredFixture f;
  REQUIRE(f.objects->MarkAsTrash(kOneDir).ok());
  std::vector<std::string> marks;
  f.store->before_mark = [&marks](const std::string& name) { marks.push_back(name); };
  StoredCheckpointDirs dirs(f.Stored(), absl::Hours(1));
  dirs.ListAtStart();
  dirs.KeepOnly({});
  dirs.WorkOnce(f.now);
  CHECK(marks == std::vector<std::string>{"trash/" + kOtherDir});
  CHECK(dirs.ListTrash()->size() == 2);
}

TEST_CASE("StoredCheckpointDirs: the mark of a checkpoint that a row names is removed",
          "[runtime]") {
  StoredFixture f;
  REQUIRE(f.objects->MarkAsTrash(kOneDir).ok());
  StoredCheckpointDirs dirs(f.Stored(), absl::ZeroDuration());
  dirs.ListAtStart();
  dirs.KeepOnly({kOneDir, kOtherDir});
  dirs.WorkOnce(f.now);
  dirs.WorkOnce(f.now);
  CHECK_FALSE(f.objects->IsTrash(kOneDir).value());
  CHECK(f.Has(kOneDir));
}

TEST_CASE("StoredCheckpointDirs: a deletion waits for the store", "[runtime]") {
  StoredFixture f;
  StoredCheckpointDirs dirs(f.Stored(), absl::Hours(1));
  dirs.Delete(kOneDir);
  dirs.Delete("");  // would be everything
  f.store->is_away = true;
  dirs.WorkOnce(f.now);
  CHECK(f.Has(kOneDir));
  f.store->is_away = false;
  dirs.WorkOnce(f.now);
  CHECK_FALSE(f.Has(kOneDir));
  CHECK(f.Has(kOtherDir));
}

TEST_CASE("StoredCheckpointDirs: a change that fails holds up no other", "[runtime]") {
  StoredFixture f;
  StoredCheckpointDirs dirs(f.Stored(), absl::Hours(1));
  f.store->is_full = true;
  dirs.PutBack(kOneDir);
  dirs.Delete(kOtherDir);
  dirs.WorkOnce(f.now);
  CHECK_FALSE(f.Has(kOtherDir));
  dirs.Delete(kOneDir);  // after its mark, which still fails
  dirs.WorkOnce(f.now);
  CHECK(f.Has(kOneDir));
  CHECK(dirs.ListTrash()->empty());
  f.store->is_full = false;
  dirs.WorkOnce(f.now);
  CHECK_FALSE(f.Has(kOneDir));
  CHECK(*dirs.ListTrash() == std::vector<std::string>{kOneDir});
}

TEST_CASE("StoredCheckpointDirs: what came out of the trash is not deleted from it", "[runtime]") {
  const bool by_another_engine = GENERATE(false, true);
  StoredFixture f;
  REQUIRE(f.objects->MarkAsTrash(kOneDir).ok());
  REQUIRE(f.objects->MarkAsTrash(kOtherDir).ok());
  StoredCheckpointDirs dirs(f.Stored(), /*trash_kept=*/absl::ZeroDuration());
  dirs.ListAtStart();
  dirs.KeepOnly({});
  dirs.WorkOnce(f.now + absl::Hours(1));  // decides to delete both
  if (by_another_engine) {
    REQUIRE(f.objects->UnmarkAsTrash(kOneDir).ok());
  } else {
    REQUIRE(dirs.TakeFromTrash(kOneDir).ok());
  }
  dirs.WorkOnce(f.now + absl::Hours(1));
  CHECK(f.Has(kOneDir));
  CHECK_FALSE(f.Has(kOtherDir));
}

TEST_CASE("StoredCheckpointDirs: a checkpoint comes back from the trash and may go again",
          "[runtime]") {
  StoredFixture f;
  StoredCheckpointDirs dirs(f.Stored(), absl::Hours(1));
  dirs.PutBack(kOneDir);
  dirs.WorkOnce(f.now);
  REQUIRE(dirs.TakeFromTrash(kOneDir).ok());
  CHECK(absl::IsNotFound(dirs.CheckInTrash(kOneDir)));
  CHECK(f.Has(kOneDir));
  dirs.PutBack(kOneDir);
  dirs.WorkOnce(f.now);
  CHECK(dirs.CheckInTrash(kOneDir).ok());
}

TEST_CASE("StoredCheckpointDirs: what comes back is not marked by what was decided before",
          "[runtime]") {
  const bool is_durable = GENERATE(false, true);
  StoredFixture f;
  for (const std::string& dir : {kOneDir, kOtherDir}) {
    REQUIRE(f.objects->MarkAsTrash(dir).ok());  // by an earlier leader
  }
  StoredCheckpointDirs dirs(f.Stored(), /*trash_kept=*/absl::ZeroDuration());
  dirs.KeepOnly({});
  for (const std::string& dir : {kOneDir, kOtherDir}) dirs.PutBack(dir);  // as a start does
  std::string taken;
  f.store->before_mark = [&](const std::string& name) {
    const std::string marked = name.substr(sizeof("trash/") - 1);
    CHECK(absl::IsUnavailable(dirs.TakeFromTrash(marked)));
    if (!taken.empty()) return;
    taken = marked == kOneDir ? kOtherDir : kOneDir;  // its mark is still to come
    REQUIRE(dirs.TakeFromTrash(taken).ok());
    if (is_durable) dirs.Keep(taken);
  };
  dirs.WorkOnce(f.now);
  CHECK_FALSE(f.objects->IsTrash(taken).value());
  dirs.WorkOnce(f.now + absl::Hours(2));
  dirs.WorkOnce(f.now + absl::Hours(2));
  CHECK(f.Has(taken));
}

TEST_CASE("StoredCheckpointDirs: what could not leave the trash is still to be marked",
          "[runtime]") {
  StoredFixture f;
  StoredCheckpointDirs dirs(f.Stored(), absl::Hours(1));
  dirs.PutBack(kOneDir);  // its mark is still to come
  f.store->is_away = true;
  CHECK(absl::IsUnavailable(dirs.TakeFromTrash(kOneDir)));
  f.store->is_away = false;
  dirs.WorkOnce(f.now);
  CHECK(f.objects->IsTrash(kOneDir).value());
  CHECK(dirs.TakeFromTrash(kOneDir).ok());  // it may be tried again
}

TEST_CASE("StoredCheckpointDirs: two adoptions of a directory leave it to the first", "[runtime]") {
  StoredFixture f;
  StoredCheckpointDirs dirs(f.Stored(), absl::Hours(1));
  dirs.PutBack(kOneDir);
  dirs.WorkOnce(f.now);
  REQUIRE(dirs.TakeFromTrash(kOneDir).ok());
  CHECK(absl::IsNotFound(dirs.TakeFromTrash(kOneDir)));
  dirs.Keep(kOneDir);  // the first one's row
  CHECK(absl::IsNotFound(dirs.TakeFromTrash(kOneDir)));
  dirs.PutBack(kOneDir);
  dirs.WorkOnce(f.now);
  CHECK_FALSE(f.objects->IsTrash(kOneDir).value());
  REQUIRE(f.objects->MarkAsTrash(kOneDir).ok());  // remains of a crash
  CHECK(absl::IsNotFound(dirs.CheckInTrash(kOneDir)));
  CHECK(dirs.ListTrash()->empty());
  dirs.Delete(kOneDir);
  dirs.WorkOnce(f.now);
  CHECK_FALSE(f.Has(kOneDir));
}

TEST_CASE("StoredCheckpointDirs: a copy outlives its source", "[runtime]") {
  StoredFixture f;
  StoredCheckpointDirs dirs(f.Stored(), absl::Hours(1));
  REQUIRE(dirs.Copy(kOneDir, kNewDir, "tinker://copy").ok());
  dirs.Delete(kOneDir);
  dirs.WorkOnce(f.now);
  CHECK(*dirs.ReadText(kNewDir, "copied_as") == "tinker://copy");
  CHECK(*dirs.SizeOf(kNewDir, "weights") == 5);
  CHECK(absl::IsNotFound(dirs.Copy(kOneDir, kNewDir, "tinker://again")));
}

TEST_CASE("StoredCheckpointDirs: only what was there before the listing can be missing",
          "[runtime]") {
  StoredFixture f;
  StoredCheckpointDirs dirs(f.Stored(), absl::Hours(1));
  CheckpointRow row;
  row.created_at = absl::ToUnixNanos(f.now);
  row.dir = kOneDir;
  CHECK_FALSE(dirs.AreFilesMissing(row));
  row.dir = kNewDir;
  CHECK(dirs.AreFilesMissing(row));
  row.created_at = absl::ToUnixNanos(absl::Now() + absl::Seconds(1));
  CHECK_FALSE(dirs.AreFilesMissing(row));
}

TEST_CASE("StoredCheckpointDirs: a store that hangs does not keep the process from ending",
          "[runtime]") {
  StoredFixture f;
  f.store->hangs = true;
  StoredCheckpointDirs dirs(f.Stored(), absl::Hours(1));
  dirs.ListAtStart();  // starts the thread
  dirs.Delete(kOneDir);
  f.store->has_hung.WaitForNotification();
  dirs.Delete(kOtherDir);
  dirs.Finish(f.now);
  CHECK(f.store->is_cancelled.HasBeenNotified());
}

TEST_CASE("StoredCheckpointDirs: another installation's place ends the process", "[runtime]") {
  StoredFixture f;
  StoredCheckpoints stored = f.Stored();
  stored.store_id = "other";
  absl::Status refused;
  stored.on_refused = [&refused](const absl::Status& status) { refused = status; };
  StoredCheckpointDirs dirs(stored, absl::Hours(1));
  dirs.Delete(kOneDir);
  dirs.WorkOnce(f.now);
  CHECK(absl::IsFailedPrecondition(refused));
  CHECK(f.Has(kOneDir));
}

TEST_CASE("StoredCheckpointDirs: a store that fails does not end the process", "[runtime]") {
  StoredFixture f;
  StoredCheckpoints stored = f.Stored();
  int num_refused = 0;
  stored.on_refused = [&num_refused](const absl::Status&) { ++num_refused; };
  StoredCheckpointDirs dirs(stored, absl::Hours(1));
  dirs.Delete(kOneDir);
  f.store->marker_failure = absl::FailedPreconditionError("the certificate has expired");
  dirs.WorkOnce(f.now);
  CHECK(f.Has(kOneDir));
  f.store->marker_failure = absl::OkStatus();
  dirs.WorkOnce(f.now);
  CHECK_FALSE(f.Has(kOneDir));
  CHECK(num_refused == 0);
}

TEST_CASE("StoredCheckpointDirs: a marker that vanished is not made again", "[runtime]") {
  const bool was_claimed = GENERATE(false, true);
  StoredFixture f;
  StoredCheckpoints stored = f.Stored();
  int num_refused = 0;
  stored.on_refused = [&num_refused](const absl::Status&) { ++num_refused; };
  stored.named_dirs = [&] {  // one is missing
    return was_claimed ? std::vector<std::string>() : std::vector<std::string>{kOneDir, kNewDir};
  };
  StoredCheckpointDirs dirs(stored, absl::Hours(1));
  dirs.KeepOnly({kOneDir, kOtherDir});
  if (was_claimed) dirs.WorkOnce(f.now);
  REQUIRE(f.store->Delete("LATHE_STORE").ok());
  dirs.WorkOnce(f.now + absl::Hours(2));
  dirs.Delete(kOneDir);
  dirs.WorkOnce(f.now + absl::Hours(2));
  CHECK(absl::IsNotFound(f.objects->ReadOwner().status()));
  CHECK(f.Has(kOneDir));
  CHECK(num_refused == 0);
  REQUIRE(f.store->PutText("LATHE_STORE", "id\n").ok());
  dirs.WorkOnce(f.now + absl::Hours(2));
  CHECK_FALSE(f.Has(kOneDir));
}

TEST_CASE("StoredCheckpointDirs: nothing is missing in a place that became another's",
          "[runtime]") {
  StoredFixture f;
  REQUIRE(f.store->PutText("LATHE_STORE", "other\n").ok());
  fs::create_directory(f.root / "into");
  CHECK(absl::IsUnavailable(f.objects->Fetch(kNewDir, f.root / "into")));
}

TEST_CASE("StoredCheckpointDirs: a place that was never claimed is not changed at the end",
          "[runtime]") {
  StoredFixture f;
  StoredCheckpoints stored = f.Stored();
  stored.store_id = "other";
  StoredCheckpointDirs dirs(stored, absl::Hours(1));
  dirs.Delete(kOneDir);
  dirs.Finish(f.now);
  CHECK(f.Has(kOneDir));
}

TEST_CASE("StoredCheckpointDirs: a trash that cannot be listed is not empty", "[runtime]") {
  StoredFixture f;
  StoredCheckpointDirs dirs(f.Stored(), absl::Hours(1));
  f.store->is_away = true;
  CHECK(absl::IsUnavailable(dirs.ListTrash().status()));
}

}  // namespace
}  // namespace lathe::engine
