#include "services/engine/scheduler/fair_queue.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace lathe::engine {
namespace {

using Fit = FairQueue::Fit;
using Names = std::vector<std::string>;

Names Take(FairQueue& queue, size_t count) {
  Names names;
  for (const FairQueue::Item& item : queue.Take([&](const std::string&, const FairQueue::Item&) {
         return count > 0 && count-- > 0 ? Fit::kTake : Fit::kEnd;
       })) {
    names.push_back(item.id);
  }
  return names;
}

// Tokens served to each tenant while `budget` tokens are taken.
std::map<char, int64_t> Serve(FairQueue& queue, int64_t budget) {
  std::map<char, int64_t> tokens;
  const auto fit = [&](const std::string&, const FairQueue::Item& item) {
    if (item.tokens > budget) return Fit::kEnd;
    budget -= item.tokens;
    return Fit::kTake;
  };
  for (const FairQueue::Item& item : queue.Take(fit)) tokens[item.id[0]] += item.tokens;
  return tokens;
}

void PushMany(FairQueue& queue, const std::string& tenant, int count, int64_t tokens) {
  for (int i = 0; i < count; ++i) {
    queue.Push(tenant, "m", {tenant + "-" + std::to_string(i), tokens});
  }
}

TEST_CASE("FairQueue: tenants with equal items alternate", "[scheduler]") {
  FairQueue queue(10);
  for (const char* id : {"a1", "a2", "a3"}) queue.Push("a", "m", {id, 10});
  for (const char* id : {"b1", "b2"}) queue.Push("b", "m", {id, 10});
  CHECK(Take(queue, 5) == Names{"a1", "b1", "a2", "b2", "a3"});
  CHECK(queue.empty());
}

TEST_CASE("FairQueue: cleared items are freed in pieces and never taken", "[scheduler]") {
  FairQueue queue(10);
  PushMany(queue, "a", 3, 10);
  queue.Clear();
  CHECK(queue.empty());
  PushMany(queue, "b", 2, 10);
  CHECK(queue.FreeSome(2));
  CHECK_FALSE(queue.FreeSome(2));
  CHECK_FALSE(queue.FreeSome(2));
  CHECK(Take(queue, 9) == Names{"b-0", "b-1"});
}

TEST_CASE("FairQueue: a tenant's models take turns", "[scheduler]") {
  FairQueue queue(1);
  queue.Push("a", "m1", {"x1", 1});
  queue.Push("a", "m1", {"x2", 1});
  queue.Push("a", "m2", {"y1", 1});
  CHECK(Take(queue, 3) == Names{"x1", "y1", "x2"});
}

TEST_CASE("FairQueue: shares are of tokens, not of requests", "[scheduler]") {
  FairQueue queue(100);
  PushMany(queue, "a", 1000, 10);
  PushMany(queue, "b", 100, 100);
  const auto served = Serve(queue, 4000);
  CHECK(std::abs(served.at('a') - served.at('b')) <= 200);
}

TEST_CASE("FairQueue: a newcomer waits for about one turn of the others", "[scheduler]") {
  FairQueue queue(100);
  PushMany(queue, "a", 1000, 50);
  Serve(queue, 2000);
  queue.Push("b", "m", {"b", 50});
  CHECK(Serve(queue, 200).count('b') == 1);
}

TEST_CASE("FairQueue: an item larger than a turn is served after saving up", "[scheduler]") {
  FairQueue queue(10);
  queue.Push("a", "m", {"a-large", 95});
  PushMany(queue, "b", 20, 10);
  Names order = Take(queue, 21);
  const auto at = std::find(order.begin(), order.end(), "a-large") - order.begin();
  CHECK(at >= 8);
  CHECK(at <= 11);
}

TEST_CASE("FairQueue: it never idles while anything waits", "[scheduler]") {
  FairQueue queue(1);
  queue.Push("a", "m", {"huge", 1'000'000});
  CHECK(Take(queue, 1) == Names{"huge"});
}

// Would take a year if each quantum were a step.
TEST_CASE("FairQueue: the cost of an item does not depend on its tokens", "[scheduler]") {
  FairQueue queue(1);
  queue.Push("a", "m", {"a", 4'000'000'000'000'000});
  queue.Push("b", "m", {"b1", 2'000'000'000'000'000});
  queue.Push("b", "m", {"b2", 1'999'999'999'999'999});
  queue.Push("c", "m", {"c", 1});
  CHECK(Take(queue, 4) == Names{"c", "b1", "b2", "a"});
}

// The order that giving one quantum after another has.
TEST_CASE("FairQueue: tenants that save up are served as in a round for each quantum",
          "[scheduler]") {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::map<std::string, std::vector<FairQueue::Item>> waiting;
    FairQueue queue(7);
    for (const char* tenant : {"a", "b", "c", "d"}) {
      for (int i = 0; i < 5; ++i) {
        const FairQueue::Item item = {tenant + std::to_string(i),
                                      static_cast<int64_t>(random() % 200 + 1)};
        waiting[tenant].push_back(item);
        queue.Push(tenant, "m", item);
      }
    }
    Names expected;
    std::map<std::string, int64_t> saved;
    while (expected.size() < 20) {
      for (auto& [tenant, items] : waiting) {
        if (items.empty()) continue;
        saved[tenant] += 7;
        while (!items.empty() && items.front().tokens <= saved[tenant]) {
          saved[tenant] -= items.front().tokens;
          expected.push_back(items.front().id);
          items.erase(items.begin());
        }
      }
    }
    CHECK(Take(queue, 20) == expected);
  }
}

TEST_CASE("FairQueue: an item that did not fit is first the next time", "[scheduler]") {
  FairQueue queue(10);
  queue.Push("a", "m", {"a1", 10});
  queue.Push("b", "m", {"b1", 10});
  queue.Push("a", "m", {"a2", 10});
  CHECK(Take(queue, 1) == Names{"a1"});
  CHECK(Take(queue, 1) == Names{"b1"});
  CHECK(Take(queue, 1) == Names{"a2"});
}

TEST_CASE("FairQueue: a tenant that is passed holds up no other and saves nothing up",
          "[scheduler]") {
  FairQueue queue(10);
  PushMany(queue, "a", 100, 10);
  PushMany(queue, "b", 100, 10);
  for (int i = 0; i < 20; ++i) {
    int count = 2;
    const auto only_b = [&](const std::string& tenant, const FairQueue::Item&) {
      if (tenant == "a") return Fit::kPassTenant;
      return count-- > 0 ? Fit::kTake : Fit::kEnd;
    };
    CHECK(queue.Take(only_b).size() == 2);
  }
  const auto served = Serve(queue, 200);
  CHECK(std::abs(served.at('a') - served.at('b')) <= 20);
  const auto no_item = [](const std::string&, const FairQueue::Item&) { return Fit::kPassTenant; };
  CHECK(queue.Take(no_item).empty());
}

TEST_CASE("FairQueue: calls that pass every tenant leave the order as it is", "[scheduler]") {
  const auto no_item = [](const std::string&, const FairQueue::Item&) { return Fit::kPassTenant; };
  const int64_t num_futile = GENERATE(0, 50);
  FairQueue queue(10);
  PushMany(queue, "a", 30, 1000);
  PushMany(queue, "b", 30, 10);
  PushMany(queue, "c", 30, 10);
  Names order;
  while (order.size() < 60) {
    for (int64_t i = 0; i < num_futile; ++i) CHECK(queue.Take(no_item).empty());
    order.push_back(Take(queue, 1).at(0));
  }
  // A large item does not go first because nobody was served for a while.
  CHECK(std::count_if(order.begin(), order.end(),
                      [](const std::string& id) { return id[0] == 'a'; }) == 0);
  CHECK(order[0] == "b-0");
  CHECK(order[1] == "c-0");
}

TEST_CASE("FairQueue: it knows the tokens that wait", "[scheduler]") {
  FairQueue queue(10);
  queue.Push("a", "m", {"a1", 10});
  queue.Push("a", "m", {"a2", 5});
  queue.Push("b", "m", {"b1", 7});
  CHECK(queue.tokens() == 22);
  CHECK(queue.Remove("a", "m", "a2"));
  CHECK_FALSE(queue.Remove("a", "m", "a2"));
  CHECK(queue.tokens() == 17);
  CHECK(Take(queue, 1) == Names{"a1"});
  CHECK(queue.tokens() == 7);
  queue.Clear();
  CHECK(queue.tokens() == 0);
}

TEST_CASE("FairQueue: removed items are not served", "[scheduler]") {
  FairQueue queue(10);
  queue.Push("a", "m", {"a1", 10});
  queue.Push("a", "m", {"a2", 5});
  CHECK(queue.Remove("a", "m", "a1"));
  CHECK_FALSE(queue.Remove("a", "m", "a1"));
  CHECK(Take(queue, 2) == Names{"a2"});
}

TEST_CASE("FairQueue: removing an item keeps the order of the others", "[scheduler]") {
  FairQueue queue(10);
  PushMany(queue, "a", 6, 10);
  CHECK(Take(queue, 1) == Names{"a-0"});
  CHECK_FALSE(queue.Remove("a", "m", "a-0"));
  for (const char* id : {"a-5", "a-1", "a-3"}) CHECK(queue.Remove("a", "m", id));
  queue.Push("a", "m", {"a-1", 10});
  CHECK(Take(queue, 9) == Names{"a-2", "a-4", "a-1"});
  CHECK(queue.empty());
}

}  // namespace
}  // namespace lathe::engine
