#include "libs/common/concurrency/thread_team.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

namespace lathe {
namespace {

// Spins until `is_true`, for effects of other threads.
template <typename F>
void WaitUntil(const F& is_true) {
  while (!is_true()) std::this_thread::yield();
}

TEST_CASE("A team runs each task once", "[team]") {
  const int64_t num_threads = GENERATE(1, 2, 5);
  ThreadTeam team(num_threads);
  CHECK(team.num_threads() == num_threads);
  for (const int64_t num_tasks : {0, 1, 2, 3, 1000}) {
    std::vector<int> runs(static_cast<size_t>(num_tasks));  // tsan reports tasks that share one
    team.Run(num_tasks,
             [&](int64_t task, int64_t /*thread*/) { ++runs[static_cast<size_t>(task)]; });
    CHECK(std::count(runs.begin(), runs.end(), 1) == num_tasks);
  }
}

TEST_CASE("What the tasks of many sections have written is there when each is done", "[team]") {
  ThreadTeam team(3);
  std::vector<int64_t> numbers(7);
  for (int64_t section = 1; section <= 20000; ++section) {
    const int64_t num_tasks = 2 + section % 6;
    team.Run(num_tasks, [&](int64_t task, int64_t /*thread*/) {
      numbers[static_cast<size_t>(task)] = section;
    });
    const auto end = numbers.begin() + num_tasks;
    REQUIRE(std::count(numbers.begin(), end, section) == num_tasks);
  }
}

TEST_CASE("Helpers that sleep are woken, and every thread has a number of its own", "[team]") {
  ThreadTeam team(3);
  for (int round = 0; round < 3; ++round) {
    WaitUntil([&] { return team.num_asleep() == 2; });
    std::atomic<int> num_here = 0;
    std::vector<int> users(3);
    // No task ends before all three have begun, so each must run on another thread.
    team.Run(3, [&](int64_t /*task*/, int64_t thread) {
      ++users[static_cast<size_t>(thread)];
      ++num_here;
      WaitUntil([&] { return num_here == 3; });
    });
    CHECK(users == std::vector<int>{1, 1, 1});
  }
}

TEST_CASE("The caller waits for a task that a helper is long at", "[team]") {
  ThreadTeam team(2);
  const auto caller = std::this_thread::get_id();
  std::atomic<bool> is_helped = false;
  std::atomic<bool> caller_is_done = false;
  bool helper_is_done = false;
  team.Run(2, [&](int64_t /*task*/, int64_t /*thread*/) {
    if (std::this_thread::get_id() == caller) {
      WaitUntil([&] { return is_helped.load(); });
      caller_is_done = true;
      return;
    }
    is_helped = true;
    WaitUntil([&] { return caller_is_done.load(); });
    // Longer than the caller spins before it sleeps.
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(5);
    WaitUntil([&] { return std::chrono::steady_clock::now() >= end; });
    helper_is_done = true;
  });
  CHECK(helper_is_done);
}

TEST_CASE("What a task throws comes out when the others are done", "[team]") {
  ThreadTeam team(2);
  std::atomic<int> num_runs = 0;
  const auto run = [&](int64_t task, int64_t /*thread*/) {
    ++num_runs;
    if (task == 10) throw std::runtime_error("task 10");
  };
  CHECK_THROWS_WITH(team.Run(50, run), "task 10");
  CHECK(num_runs == 50);
  team.Run(5, run);
  CHECK(num_runs == 55);
}

TEST_CASE("Tasks of a task run on its thread", "[team]") {
  ThreadTeam team(2);
  ThreadTeam other(2);
  std::atomic<int> num_inner = 0;
  team.Run(8, [&](int64_t /*task*/, int64_t /*thread*/) {
    const auto self = std::this_thread::get_id();
    const auto inner = [&](int64_t /*task*/, int64_t thread) {
      num_inner += thread == 0 && std::this_thread::get_id() == self ? 1 : 0;
    };
    team.Run(4, inner);
    other.Run(4, inner);
    num_inner += ThreadTeam::IsInTask() ? 1 : 0;
  });
  CHECK(num_inner == 72);
  CHECK_FALSE(ThreadTeam::IsInTask());
}

TEST_CASE("A team ends whether its helpers sleep, look or have just begun", "[team]") {
  for (int i = 0; i < 50; ++i) ThreadTeam team(4);
  ThreadTeam asleep(4);
  WaitUntil([&] { return asleep.num_asleep() == 3; });
  ThreadTeam looking(4);
  looking.Run(100, [](int64_t, int64_t) {});
}

}  // namespace
}  // namespace lathe
