#include "tools/lathe/terminal/text.h"

#include <catch2/catch.hpp>
#include <string>

namespace lathe::cli {
namespace {

constexpr bool kUtf8 = true;
constexpr bool kAscii = false;

TEST_CASE("Text that a terminal only shows stays as it is", "[terminal]") {
  const std::string plain = GENERATE("", "lr 1e-4, run 2", "Läufe", "模型", "שלום", "🚂");
  CHECK(SafeText(plain, kUtf8) == plain);
}

TEST_CASE("Text that a terminal would obey is escaped", "[terminal]") {
  const auto [hostile, safe] = GENERATE(table<std::string, std::string>({
      {"\x1b]0;owned\x07", "\\x1b]0;owned\\x07"},
      {"a\r\nb\tc\x7f", "a\\x0d\\x0ab\\x09c\\x7f"},
      {"\xc2\x9b"
       "31m",
       "\\x9b31m"},  // CSI as one character
      {"\xe2\x80\xae"
       "evil",
       "\\u202eevil"},  // right-to-left override
      {"a\xe2\x80\x8b"
       "b",
       "a\\u200bb"},                        // zero-width space
      {"\xe2\x80\xa8", "\\u2028"},          // line separator
      {"\xf3\xa0\x81\x81", "\\U000e0041"},  // a tag
  }));
  CHECK(SafeText(hostile, kUtf8) == safe);
}

TEST_CASE("Bytes that are not UTF-8 are escaped one by one", "[terminal]") {
  const auto [broken, safe] = GENERATE(table<std::string, std::string>({
      {"\x9b"
       "31m",
       "\\x9b31m"},
      {"\xc0\xaf", "\\xc0\\xaf"},           // an overlong form
      {"\xed\xa0\x80", "\\xed\\xa0\\x80"},  // a surrogate
      {"\xf5\x80\x80\x80", "\\xf5\\x80\\x80\\x80"},
      {"a\xe2\x80", "a\\xe2\\x80"},  // cut off
  }));
  CHECK(SafeText(broken, kUtf8) == safe);
}

TEST_CASE("A terminal without UTF-8 gets ASCII only", "[terminal]") {
  CHECK(SafeText("ä模", kAscii) == "\\xe4\\u6a21");
}

TEST_CASE("Widths are those of the terminal", "[terminal]") {
  CHECK(TextWidth("abc") == 3);
  CHECK(TextWidth("模型") == 4);
  CHECK(TextWidth("e\xcc\x81") == 1);  // with a combining accent
}

TEST_CASE("Text is cut and filled to a width", "[terminal]") {
  CHECK(CutText("abcdef", 6) == "abcdef");
  CHECK(CutText("abcdef", 4) == "abc~");
  CHECK(CutText("模型模型", 4) == "模~");
  CHECK(CutText("abc", 0).empty());
  CHECK(PadText("ab", 4) == "ab  ");
  CHECK(PadText("12", 4, /*is_right=*/true) == "  12");
  CHECK(PadText("模型模", 4) == "模~ ");
}

}  // namespace
}  // namespace lathe::cli
