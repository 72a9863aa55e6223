#include "services/engine/rpc/read_threads.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "libs/common/errors.h"

namespace lathe::engine {
namespace {

TEST_CASE("ReadThreads: a tenant whose reads hang leaves half of the threads to others", "[rpc]") {
  absl::Notification go_on;
  std::atomic<int> num_hanging = 0;
  absl::Notification other_ran;
  ReadThreads threads({.num_threads = 4, .max_waiting = 8});
  for (int i = 0; i < 8; ++i) {
    REQUIRE(threads
                .TryRun("greedy",
                        [&] {
                          ++num_hanging;
                          go_on.WaitForNotification();
                        })
                .ok());
  }
  REQUIRE(threads.TryRun("other", [&] { other_ran.Notify(); }).ok());
  other_ran.WaitForNotification();
  CHECK(num_hanging <= 2);
  go_on.Notify();
}

TEST_CASE("ReadThreads: above the bound a tenant's reads are refused, other tenants' are not",
          "[rpc]") {
  absl::Notification go_on;
  absl::Notification runs;
  ReadThreads threads({.num_threads = 1, .max_waiting = 2});
  REQUIRE(threads
              .TryRun("greedy",
                      [&] {
                        runs.Notify();
                        go_on.WaitForNotification();
                      })
              .ok());
  runs.WaitForNotification();
  std::atomic<int> num_ran = 0;
  const auto count = [&num_ran] { ++num_ran; };
  CHECK(threads.TryRun("greedy", count).ok());
  CHECK(threads.TryRun("greedy", count).ok());
  const absl::Status refused = threads.TryRun("greedy", count);
  CHECK(absl::IsResourceExhausted(refused));
  CHECK(ErrorCode(refused) == "too_many_reads");
  CHECK(RetryAfter(refused) > absl::ZeroDuration());
  CHECK(threads.TryRun("other", count).ok());
  go_on.Notify();
  while (num_ran < 3) std::this_thread::yield();
  CHECK(threads.TryRun("greedy", count).ok());
}

TEST_CASE("ReadThreads: background reads give way to others, and answers do not", "[rpc]") {
  const bool is_background = GENERATE(false, true);
  const int own = getpriority(PRIO_PROCESS, 0);
  int of_read = 0;
  int of_answer = 0;
  {
    ReadThreads threads({.is_background = is_background});
    const auto read = [&] { of_read = getpriority(PRIO_PROCESS, 0); };
    const auto answer = [&] { of_answer = getpriority(PRIO_PROCESS, 0); };
    REQUIRE(threads.TryRun("a", read, answer).ok());
  }
  constexpr int kLowest = 19;
  CHECK(of_read == (is_background ? std::min(own + 10, kLowest) : own));
  CHECK(of_answer == own);
}

TEST_CASE("ReadThreads: tenants take turns", "[rpc]") {
  std::string order;
  absl::Notification go_on;
  absl::Notification runs;
  {
    ReadThreads threads({.num_threads = 1, .max_waiting = 8});
    REQUIRE(threads
                .TryRun("a",
                        [&] {
                          runs.Notify();
                          go_on.WaitForNotification();
                        })
                .ok());
    runs.WaitForNotification();
    for (const char* tenant : {"a", "a", "a", "b"}) {
      REQUIRE(threads.TryRun(tenant, [&order, tenant] { order += tenant; }).ok());
    }
    go_on.Notify();
  }
  CHECK(order.find('b') < order.size() - 1);
  CHECK(order.size() == 4);
}

}  // namespace
}  // namespace lathe::engine
