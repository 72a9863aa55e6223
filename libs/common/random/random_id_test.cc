#include "libs/common/random/random_id.h"

#include <catch2/catch.hpp>
#include <set>

namespace lathe {
namespace {

TEST_CASE("A random id is hex of the asked length", "[random]") {
  const std::string id = RandomId(10);
  CHECK(id.size() == 20);
  CHECK(id.find_first_not_of("0123456789abcdef") == std::string::npos);
  CHECK(RandomId(0).empty());
}

TEST_CASE("A base62 id uses all 62 characters", "[random]") {
  const std::string id = RandomBase62(10'000);
  CHECK(id.size() == 10'000);
  CHECK(std::set<char>(id.begin(), id.end()).size() == 62);
}

TEST_CASE("Ids do not repeat", "[random]") {
  std::set<std::string> ids;
  for (int i = 0; i < 1000; ++i) ids.insert(RandomId(8));
  CHECK(ids.size() == 1000);
  CHECK(RandomUint64() != RandomUint64());
}

}  // namespace
}  // namespace lathe
