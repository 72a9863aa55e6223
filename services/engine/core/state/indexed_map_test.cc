#include "services/engine/core/state/indexed_map.h"

#include <catch2/catch.hpp>

namespace lathe::engine {
namespace {

struct Item {
  std::string owner;
};

const std::string& OwnerOf(const Item& item) { return item.owner; }

using Items = IndexedMap<Item, OwnerOf>;
using Ids = std::set<std::string>;

TEST_CASE("IndexedMap: values are found by their shared key, in the order of ids") {
  Items items;
  items.Add("b", {"x"});
  items.Add("a", {"x"});
  items.Add("c", {"y"});
  CHECK(items.IdsWith("x") == Ids{"a", "b"});
  CHECK(items.IdsWith("y") == Ids{"c"});
  CHECK(items.IdsWith("z").empty());
  CHECK(items.at("c").owner == "y");
}

TEST_CASE("IndexedMap: what was taken is not found") {
  Items items;
  items.Add("a", {"x"});
  items.Add("b", {"x"});
  CHECK(items.Take("a").owner == "x");
  CHECK(items.IdsWith("x") == Ids{"b"});
  CHECK(items.count("a") == 0);
  items.Take("b");
  CHECK(items.IdsWith("x").empty());
  items.Add("a", {"y"});
  CHECK(items.IdsWith("y") == Ids{"a"});
}

TEST_CASE("IndexedMap: a value that changed is found by its new key") {
  Items items;
  items.Add("a", {"x"});
  items.Change("a", [](Item& item) { item.owner = "y"; });
  CHECK(items.IdsWith("x").empty());
  CHECK(items.IdsWith("y") == Ids{"a"});
  items.Change("a", [](Item& item) { item.owner.clear(); });
  CHECK(items.IdsWith("y").empty());
}

TEST_CASE("IndexedMap: a value without a shared key is found by its id only") {
  Items items;
  items.Add("a", {""});
  CHECK(items.IdsWith("").empty());
  CHECK(items.count("a") == 1);
  CHECK(items.Take("a").owner.empty());
}

}  // namespace
}  // namespace lathe::engine
