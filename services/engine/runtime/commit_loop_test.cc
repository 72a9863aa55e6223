#include "services/engine/runtime/commit_loop.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "libs/common/fail_point/fail_point.h"
#include "services/engine/store/sqlite/sqlite_store.h"
#include "services/engine/store/testing/store_rows.h"
#include "services/engine/store/testing/temp_dir.h"

namespace lathe::engine {
namespace {

struct CommitLoopFixture {
  TempDir dir;
  std::unique_ptr<SqliteStore> store = *SqliteStore::Open(
      {.database = dir.path() / "lathe.db", .bodies_dir = dir.path() / "bodies"});
  int64_t term = store->TakeLeadership()->term;
};

CommitLoop::Item Session(uint64_t commit_id) {
  CommitLoop::Item item;
  item.commit.commit_id = commit_id;
  item.commit.writes = {PutSession{TestSession("s" + std::to_string(commit_id))}};
  return item;
}

TEST_CASE("CommitLoop: writes that wait during a commit go into the next one, in order",
          "[runtime]") {
  CommitLoopFixture f;
  absl::Notification first_is_durable;
  absl::Notification go_on;
  std::vector<std::vector<uint64_t>> groups;
  {
    CommitLoop loop(*f.store, f.term,
                    {.on_durable =
                         [&](const std::vector<CommitLoop::Item>& items) {
                           std::vector<uint64_t>& group = groups.emplace_back();
                           for (const auto& item : items) group.push_back(item.commit.commit_id);
                           if (groups.size() > 1) return;
                           first_is_durable.Notify();
                           go_on.WaitForNotification();
                         },
                     .on_failure = [](const absl::Status&) { FAIL("no failure expected"); }});
    loop.Enqueue(Session(1));
    first_is_durable.WaitForNotification();
    for (uint64_t id = 2; id <= 4; ++id) loop.Enqueue(Session(id));
    go_on.Notify();
  }
  CHECK(groups == std::vector<std::vector<uint64_t>>{{1}, {2, 3, 4}});
  CHECK(f.store->ListSessions("t1", 10, 0)->total_count == 4);
}

TEST_CASE("CommitLoop: a group has at most 256 writes, but one commit is never split",
          "[runtime]") {
  CommitLoopFixture f;
  absl::Notification first_is_durable;
  absl::Notification go_on;
  std::vector<size_t> sizes;
  {
    CommitLoop loop(*f.store, f.term,
                    {.on_durable =
                         [&](const std::vector<CommitLoop::Item>& items) {
                           sizes.push_back(items.size());
                           if (sizes.size() > 1) return;
                           first_is_durable.Notify();
                           go_on.WaitForNotification();
                         },
                     .on_failure = [](const absl::Status&) { FAIL("no failure expected"); }});
    CommitLoop::Item large = Session(1);
    large.commit.writes.resize(300, PutSession{TestSession("s1")});
    loop.Enqueue(large);
    first_is_durable.WaitForNotification();
    for (uint64_t id = 2; id <= 301; ++id) loop.Enqueue(Session(id));
    go_on.Notify();
  }
  CHECK(sizes == std::vector<size_t>{1, 256, 44});
}

TEST_CASE("CommitLoop: after a failure nothing is acknowledged any more", "[runtime]") {
  CommitLoopFixture f;
  absl::Status failure;
  std::vector<uint64_t> durable;
  absl::Notification has_failed;
  {
    CommitLoop loop(*f.store, f.term,
                    {.on_durable =
                         [&](const std::vector<CommitLoop::Item>& items) {
                           for (const auto& item : items) durable.push_back(item.commit.commit_id);
                         },
                     .on_failure =
                         [&](const absl::Status& status) {
                           failure = status;
                           has_failed.Notify();
                         }});
    // Another leader ends this term.
    REQUIRE(f.store->TakeLeadership().ok());
    loop.Enqueue(Session(1));
    has_failed.WaitForNotification();
    loop.Enqueue(Session(2));
  }
  CHECK(failure.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(durable.empty());
  CHECK(f.store->ListSessions("t1", 10, 0)->total_count == 0);
}

TEST_CASE("CommitLoop: a full disk is waited for, and nothing is lost or answered before",
          "[runtime]") {
  CommitLoopFixture f;
  std::vector<std::string> story;
  absl::Notification is_done;
  REQUIRE(SetFailPointsForTest("engine.commit.before=error:28@1").ok());
  {
    CommitLoop loop(
        *f.store, f.term,
        {.on_durable =
             [&](const std::vector<CommitLoop::Item>&) {
               story.push_back("durable");
               is_done.Notify();
             },
         .on_full =
             [&](const absl::Status& status) { story.push_back(status.ok() ? "room" : "full"); },
         .on_failure = [](const absl::Status&) { FAIL("no failure expected"); }});
    loop.Enqueue(Session(1));
    is_done.WaitForNotification();
  }
  REQUIRE(SetFailPointsForTest("").ok());
  CHECK(story == std::vector<std::string>{"full", "room", "durable"});
  CHECK(f.store->ListSessions("t1", 10, 0)->total_count == 1);
}

TEST_CASE("CommitLoop: a full disk does not hold up the end", "[runtime]") {
  CommitLoopFixture f;
  absl::Status failure;
  absl::Notification is_full;
  REQUIRE(SetFailPointsForTest("engine.commit.before=error:28").ok());
  {
    CommitLoop loop(
        *f.store, f.term,
        {.on_durable = [](const std::vector<CommitLoop::Item>&) { FAIL("nothing is durable"); },
         .on_full =
             [&](const absl::Status&) {
               if (!is_full.HasBeenNotified()) is_full.Notify();
             },
         .on_failure = [&](const absl::Status& status) { failure = status; }});
    loop.Enqueue(Session(1));
    is_full.WaitForNotification();
  }
  REQUIRE(SetFailPointsForTest("").ok());
  CHECK(failure.code() == absl::StatusCode::kResourceExhausted);
}

TEST_CASE("CommitLoop: users' points have bounds of bytes, in all, of a tenant and of a group",
          "[runtime]") {
  CommitLoopFixture f;
  absl::Notification first_is_durable;
  absl::Notification go_on;
  std::vector<size_t> group_sizes;
  int num_durable = 0;
  int num_taken = 0;
  {
    CommitLoop loop(*f.store, f.term,
                    {.on_points =
                         [&](int64_t, const std::vector<PointEntryPtr>& entries) {
                           group_sizes.push_back(entries.size());
                         },
                     .on_durable =
                         [&](const std::vector<CommitLoop::Item>&) {
                           first_is_durable.Notify();
                           go_on.WaitForNotification();
                         },
                     .on_failure = [](const absl::Status&) { FAIL("no failure expected"); }});
    const auto append = [&](const std::string& tenant) {
      PointEntry entry = {.run_id = "s1:train:0", .tenant_id = tenant, .kind = EntryKind::kUsers};
      entry.points.resize(1000, {.name = std::string(64, 'n'), .value = 1, .step = 1});
      return loop.TryEnqueue(
          {.entry = std::make_shared<PointEntry>(entry), .on_durable = [&] { ++num_durable; }});
    };
    // Enqueues calls until one is refused. Returns the message of that.
    const auto fill = [&](const std::string& tenant) {
      for (;;) {
        const absl::Status status = append(tenant);
        if (!status.ok()) {
          CHECK(absl::IsResourceExhausted(status));
          return std::string(status.message());
        }
        ++num_taken;
      }
    };
    loop.Enqueue(Session(1));
    first_is_durable.WaitForNotification();
    CHECK(fill("t1").find("limit is 2097152") != std::string::npos);
    CHECK(num_taken == 14);
    // Another tenant has its own part.
    CHECK(append("t2").ok());
    ++num_taken;
    std::string message;
    for (int i = 3; message.find("all calls") == std::string::npos; ++i) {
      REQUIRE(i < 10);
      message = fill("t" + std::to_string(i));
    }
    CHECK(message.find("limit is 8388608") != std::string::npos);
    go_on.Notify();
  }
  CHECK(num_durable == num_taken);
  REQUIRE(group_sizes.size() == 9);
  CHECK(group_sizes.front() == 7);
}

}  // namespace
}  // namespace lathe::engine
