#include "services/engine/core/state/sweep.h"

#include <catch2/catch.hpp>

namespace lathe::engine {
namespace {

using List = std::vector<std::string>;

TEST_CASE("Budget: it is used up after its number", "[core]") {
  Budget budget(2);
  CHECK(budget.Take());
  CHECK_FALSE(budget.is_used_up());
  CHECK(budget.Take());
  CHECK(budget.is_used_up());
  CHECK_FALSE(budget.Take());
  CHECK(budget.left() == 0);
}

TEST_CASE("DueTimes: the earliest comes first, and each once", "[core]") {
  DueTimes due;
  due.Set("a", 30);
  due.Set("b", 10);
  due.Set("c", 20);
  due.Set("d", 40);
  CHECK(due.Take(/*now=*/30) == "b");
  CHECK(due.Take(30) == "c");
  CHECK(due.Take(30) == "a");
  CHECK(due.Take(30) == std::nullopt);
  CHECK_FALSE(due.empty());
  CHECK(due.Take(40) == "d");
  CHECK(due.empty());
}

TEST_CASE("DueTimes: a new time replaces the old one", "[core]") {
  DueTimes due;
  due.Set("a", 10);
  due.Set("a", 20);
  CHECK(due.Take(10) == std::nullopt);
  CHECK(due.Take(20) == "a");
  due.Set("a", 5);
  due.Remove("a");
  due.Remove("a");
  CHECK(due.empty());
}

TEST_CASE("Turns: those that a budget leaves out come next", "[core]") {
  Turns turns;
  for (const char* const id : {"c", "a", "b", "e", "d"}) turns.Set(id, true);
  CHECK(turns.Next(5) == List{"a", "b", "c", "d", "e"});
  CHECK(turns.Next(2) == List{"a", "b"});
  turns.Set("c", false);
  CHECK(turns.Next(2) == List{"d", "e"});
  CHECK(turns.Next(3) == List{"a", "b", "d"});
  CHECK(turns.Next(0).empty());
}

}  // namespace
}  // namespace lathe::engine
