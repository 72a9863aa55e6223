// Tests of a loss of power under the SQLite store.
#include <array>
#include <catch2/catch.hpp>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/engine/store/sqlite/connection.h"
#include "services/engine/store/sqlite/sqlite_harness.h"
#include "services/engine/store/sqlite/sqlite_store.h"
#include "services/engine/store/sqlite/testing/power_loss_vfs.h"
#include "services/engine/store/testing/store_rows.h"
#include "services/engine/store/testing/temp_dir.h"

namespace lathe::engine {
namespace {

constexpr int kSessionsPerCommit = 3;

SqliteStore::Options In(const std::filesystem::path& dir) {
  return {.database = dir / "lathe.db", .bodies_dir = dir / "bodies"};
}

// A directory with the disk's contents after a loss of power, and the number of commits that were
// acknowledged by then.
struct Loss {
  std::filesystem::path dir;
  int acknowledged = 0;
};

struct Fixture {
  explicit Fixture(uint64_t seed) : random(seed), vfs(seed) {}

  // Loses power before about one in `period` operations, at most `max_losses` times.
  void LosePower(uint64_t period, size_t max_losses) {
    vfs.set_on_operation([this, period, max_losses] {
      if (losses.size() >= max_losses || random() % period != 0) return;
      losses.push_back({temp.path() / absl::StrCat("loss", losses.size()), acknowledged});
      vfs.CopyAfterLoss(losses.back().dir);
    });
  }

  TempDir temp;
  std::mt19937_64 random;
  PowerLossVfs vfs;
  int acknowledged = 0;
  std::vector<Loss> losses;
};

// Commits enough data that a checkpoint of the log occurs every hundred commits.
absl::Status CommitSessions(Store& store, int64_t term, int number) {
  std::vector<Write> writes;
  for (int i = 0; i < kSessionsPerCommit; ++i) {
    SessionRow row = TestSession(absl::StrCat("s", number, "_", i));
    row.display_name = std::string(8000, static_cast<char>('a' + i));
    writes.push_back(PutSession{row});
  }
  return store.Commit(term, writes, {});
}

TEST_CASE("SqliteStore: what was committed survives a loss of power, whole commits only (C8)",
          "[store]") {
  const uint64_t seed = 11;
  Fixture f(seed);
  auto store = *SqliteStore::Open(In(f.temp.path()));
  const int64_t term = store->TakeLeadership()->term;
  f.LosePower(/*period=*/80, /*max_losses=*/40);
  for (int number = 0; number < 400; ++number) {
    REQUIRE(CommitSessions(*store, term, number).ok());
    f.acknowledged = number + 1;
  }
  store.reset();
  REQUIRE(f.losses.size() == 40);
  f.vfs.set_on_operation(nullptr);
  for (const Loss& loss : f.losses) {
    INFO("acknowledged " << loss.acknowledged << ", seed " << seed);
    auto found = SqliteStore::Open(In(loss.dir));
    INFO(found.status());
    REQUIRE(found.ok());
    const int64_t num_sessions = (*found)->ListSessions("t1", 1, 0)->total_count;
    CHECK(num_sessions >= kSessionsPerCommit * loss.acknowledged);
    CHECK(num_sessions <= kSessionsPerCommit * (loss.acknowledged + 1));
    CHECK(num_sessions % kSessionsPerCommit == 0);
    Connection connection(In(loss.dir).database.string(), SQLite::OPEN_READONLY);
    Query check = connection.Prepare("PRAGMA integrity_check");
    check.Next();
    CHECK(check.Text() == "ok");
  }
}

TEST_CASE("PowerLossVfs: loses commits that were made with synchronous=NORMAL", "[store]") {
  Fixture f(3);
  const std::string path = (f.temp.path() / "lathe.db").string();
  Connection connection(path, SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
  connection.Execute("PRAGMA journal_mode = WAL");
  connection.Execute("CREATE TABLE t (n INTEGER)");
  connection.Execute("PRAGMA synchronous = NORMAL");
  connection.Execute("PRAGMA wal_checkpoint(TRUNCATE)");
  for (int i = 0; i < 20; ++i) connection.Execute("INSERT INTO t VALUES (1)");
  f.vfs.CopyAfterLoss(f.temp.path() / "loss");
  Connection after((f.temp.path() / "loss" / "lathe.db").string(), SQLite::OPEN_READWRITE);
  CHECK(ReadInt(after, "SELECT count(*) FROM t") < 20);
  CHECK(ReadInt(connection, "SELECT count(*) FROM t") == 20);
}

}  // namespace
}  // namespace lathe::engine
