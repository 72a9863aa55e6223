#include "libs/common/api_key/api_key.h"

#include <catch2/catch.hpp>

namespace lathe {
namespace {

TEST_CASE("ApiKey: a made key begins with tml- and parses to its id", "[auth]") {
  const ApiKeyText key = MakeApiKey();
  CHECK(key.text.starts_with("tml-"));
  CHECK(ParseKeyId(key.text) == key.key_id);
  CHECK(MakeApiKey().text != key.text);
}

TEST_CASE("ApiKey: any single changed character is noticed without the store", "[auth]") {
  const std::string text = MakeApiKey().text;
  for (size_t i = 0; i < text.size(); ++i) {
    std::string wrong = text;
    wrong[i] = wrong[i] == 'a' ? 'b' : 'a';
    INFO(i);
    CHECK_FALSE(ParseKeyId(wrong).has_value());
  }
}

TEST_CASE("ApiKey: other lengths and foreign bytes are no keys", "[auth]") {
  const std::string text = MakeApiKey().text;
  CHECK_FALSE(ParseKeyId("").has_value());
  CHECK_FALSE(ParseKeyId("tml-").has_value());
  CHECK_FALSE(ParseKeyId(text + "x").has_value());
  CHECK_FALSE(ParseKeyId(text.substr(1)).has_value());
  CHECK_FALSE(ParseKeyId(std::string(text.size(), '\0')).has_value());
}

}  // namespace
}  // namespace lathe
