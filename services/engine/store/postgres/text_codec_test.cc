#include "services/engine/store/postgres/text_codec.h"

#include <catch2/catch.hpp>
#include <string>

namespace lathe::engine {
namespace {

TEST_CASE("PostgresText: a text that Postgres accepts is stored unchanged", "[store]") {
  const std::string text = GENERATE("", "plain", "gr\xc3\xbc\xc3\x9f", "\xe2\x82\xac",
                                    "\xf0\x9f\x98\x80", "\xed\x9f\xbf", "\xf4\x8f\xbf\xbf");
  CHECK(EncodeText(text) == text);
  CHECK(DecodeText(text) == text);
}

TEST_CASE("PostgresText: bytes that Postgres refuses come back as they were", "[store]") {
  const std::string text =
      GENERATE(std::string("a\0b", 3), std::string("\0", 1), std::string("\x01"),
               std::string("\x01\x30\x30"), std::string("\xff"), std::string("\xc3"),
               std::string("\xc0\x80"), std::string("\xe0\x80\x80"), std::string("\xed\xa0\x80"),
               std::string("\xf4\x90\x80\x80"), std::string("\xe2\x82"), std::string("x\x80"));
  const std::string stored = EncodeText(text);
  CHECK(stored[0] == '\x01');
  CHECK(stored.find_first_not_of("0123456789abcdef", 1) == std::string::npos);
  CHECK(DecodeText(stored) == text);
}

}  // namespace
}  // namespace lathe::engine
