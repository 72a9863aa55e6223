#include "services/worker/tokenizer/text_pattern.h"

#include <catch2/catch.hpp>

namespace lathe::worker {
namespace {

TEST_CASE("Pattern syntax: constructs of the same meaning stay unchanged", "[tokenizer]") {
  const std::string pattern = GENERATE(
      R"((?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[\r\n]*)", R"((?<=a)b(?!c)(?>d|e)*+)",
      R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+)", R"(a{2,}?b{3}{x})", R"(\x41\x{1F600})");
  CHECK(*ToPcre2Pattern(pattern) == pattern);
}

TEST_CASE("Pattern syntax: constructs of another meaning are translated", "[tokenizer]") {
  CHECK(*ToPcre2Pattern(R"(\s+(?!\S))") == R"(\p{White_Space}+(?!\P{White_Space}))");
  CHECK(*ToPcre2Pattern(R"(\W)") ==
        R"([^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{b2}\x{b3}\x{b9}\x{bc}-\x{be}])");
  CHECK(*ToPcre2Pattern(R"([^\s\w])") == R"([^\p{White_Space}\p{Alphabetic}\p{M}\p{Nd}\p{Pc}])");
  CHECK(*ToPcre2Pattern(R"(\p{Han}\P{^Lu})") == R"(\p{sc:Han}\P{^Lu})");
  CHECK(*ToPcre2Pattern(R"(\u4e00\v)") == R"(\x{4e00}\x0b)");
}

TEST_CASE("Pattern syntax: constructs that are not known to agree are refused by name",
          "[tokenizer]") {
  const std::string pattern =
      GENERATE(R"(\bword)", R"(\h)", R"(\K)", R"((a)\1)", R"([a&&b])", R"([a[bc]])",
               R"([[:alpha:]])", R"((?i)a)", R"((?<name>a))", R"((*UTF))", R"(a{1,3}+)", R"(a{2}?)",
               R"(a{,3})", R"([\W])", R"(\xff)", R"(\u12)", R"(\pL)", R"([])");
  const auto translated = ToPcre2Pattern(pattern);
  REQUIRE_FALSE(translated.ok());
  CHECK_THAT(std::string(translated.status().message()), Catch::Contains("is not supported"));
}

}  // namespace
}  // namespace lathe::worker
