#include "services/engine/dispatcher/group_sender.h"

#include <catch2/catch.hpp>
#include <vector>

#include "absl/synchronization/notification.h"

namespace lathe::engine {
namespace {

TEST_CASE("GroupSender: tasks run in their order", "[dispatcher]") {
  std::vector<int> order;
  absl::Notification all;
  GroupSender sender;
  for (int i = 0; i < 100; ++i) {
    REQUIRE(sender.TryPush([&order, i] { order.push_back(i); }));
  }
  REQUIRE(sender.TryPush([&] { all.Notify(); }));
  all.WaitForNotification();
  REQUIRE(order.size() == 100);
  for (int i = 0; i < 100; ++i) CHECK(order[i] == i);
}

TEST_CASE("GroupSender: a task that waits delays no other sender", "[dispatcher]") {
  absl::Notification released;
  absl::Notification other_ran;
  GroupSender waiting;
  GroupSender other;
  REQUIRE(waiting.TryPush([&] { released.WaitForNotification(); }));
  REQUIRE(other.TryPush([&] { other_ran.Notify(); }));
  other_ran.WaitForNotification();
  CHECK_FALSE(waiting.has_ended());
  released.Notify();
}

TEST_CASE("GroupSender: a full queue refuses at once", "[dispatcher]") {
  absl::Notification began;
  absl::Notification released;
  GroupSender sender(/*max_tasks=*/2);
  REQUIRE(sender.TryPush([&] {
    began.Notify();
    released.WaitForNotification();
  }));
  began.WaitForNotification();
  CHECK(sender.TryPush([] {}));
  CHECK(sender.TryPush([] {}));
  CHECK_FALSE(sender.TryPush([] {}));
  released.Notify();
}

TEST_CASE("GroupSender: the end drops the tasks that wait", "[dispatcher]") {
  absl::Notification began;
  absl::Notification released;
  bool has_run = false;
  {
    GroupSender sender;
    REQUIRE(sender.TryPush([&] {
      began.Notify();
      released.WaitForNotification();
    }));
    REQUIRE(sender.TryPush([&] { has_run = true; }));
    began.WaitForNotification();
    sender.Close();
    CHECK_FALSE(sender.TryPush([] {}));
    released.Notify();
  }
  CHECK_FALSE(has_run);
}

}  // namespace
}  // namespace lathe::engine
