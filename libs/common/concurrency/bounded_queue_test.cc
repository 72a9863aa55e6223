#include "libs/common/concurrency/bounded_queue.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <vector>

#include "libs/common/concurrency/named_thread.h"

namespace lathe {
namespace {

TEST_CASE("A full queue refuses at once", "[queue]") {
  BoundedQueue<int> queue(2);
  CHECK(queue.TryPush(1));
  CHECK(queue.TryPush(2));
  CHECK_FALSE(queue.TryPush(3));
  CHECK(queue.size() == 2);
  CHECK(queue.Pop() == 1);
  CHECK(queue.TryPush(3));
}

TEST_CASE("A closed queue gives the items that it holds and takes none", "[queue]") {
  BoundedQueue<std::unique_ptr<int>> queue(2);
  CHECK(queue.Push(std::make_unique<int>(7)));
  queue.Close();
  CHECK_FALSE(queue.TryPush(std::make_unique<int>(8)));
  CHECK_FALSE(queue.Push(std::make_unique<int>(8)));
  CHECK(**queue.Pop() == 7);
  CHECK_FALSE(queue.Pop().has_value());
}

TEST_CASE("An empty queue gives nothing when the time is up", "[queue]") {
  BoundedQueue<int> queue(1);
  CHECK_FALSE(queue.TryPop().has_value());
  CHECK_FALSE(queue.PopFor(absl::Milliseconds(1)).has_value());
}

TEST_CASE("Closing wakes a consumer and a producer that wait", "[queue]") {
  BoundedQueue<int> empty(1);
  BoundedQueue<int> full(1);
  REQUIRE(full.TryPush(0));
  std::atomic<bool> popped = true;
  std::atomic<bool> pushed = true;
  {
    NamedThread consumer("consumer", [&] { popped = empty.Pop().has_value(); });
    NamedThread producer("producer", [&] { pushed = full.Push(1); });
    empty.Close();
    full.Close();
  }
  CHECK_FALSE(popped);
  CHECK_FALSE(pushed);
}

TEST_CASE("Items pushed by several threads all arrive, each thread's in order", "[queue]") {
  constexpr int kThreads = 3;
  constexpr int kItems = 1000;
  BoundedQueue<std::pair<int, int>> queue(8);
  std::vector<NamedThread> producers;
  for (int thread = 0; thread < kThreads; ++thread) {
    producers.emplace_back("producer", [&queue, thread] {
      for (int item = 0; item < kItems; ++item) queue.Push({thread, item});
    });
  }
  std::vector<int> next(kThreads, 0);
  bool in_order = true;
  for (int count = 0; count < kThreads * kItems; ++count) {
    const auto [thread, item] = *queue.Pop();
    in_order = in_order && item == next[thread]++;
  }
  CHECK(in_order);
  CHECK(queue.size() == 0);
}

}  // namespace
}  // namespace lathe
