#include "services/api-gateway/json/number_lists.h"

#include <bit>
#include <catch2/catch.hpp>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace lathe::gateway {
namespace {

template <typename T>
std::vector<T> Unpacked(const std::string& packed) {
  std::vector<T> values(packed.size() / sizeof(T));
  std::memcpy(values.data(), packed.data(), packed.size());
  return values;
}

template <typename T>
bool Reads(const std::string& text) {
  std::string packed;
  return !PackNumbers<T>(text, &packed);
}

TEST_CASE("Lists of numbers are cut out, all else stays", "[json]") {
  const auto ends = GENERATE(NumberLists::Ends::kAtBracket, NumberLists::Ends::kChecked);
  NumberLists lists;
  REQUIRE(lists.Cut(R"({"a":[1,2 ],"b":[ -3.5e1 ],"c":[],"d":["[1]"],"\"[7]":[{"e":[0]}]})", ends));
  CHECK(lists.rest() == R"({"a":[0],"b":[1],"c":[],"d":["[1]"],"\"[7]":[{"e":[2]}]})");
  REQUIRE(lists.size() == 3);
  CHECK(lists.Take(0) == "1,2 ");
  CHECK(lists.Take(1) == " -3.5e1 ");
  CHECK(lists.Take(2) == "0");
  CHECK_FALSE(lists.Cut(R"({"a":[1,2)", ends));
  CHECK_FALSE(lists.Cut(R"({"a)", ends));
}

TEST_CASE("A list with other elements is found unsound, and not cut when checked", "[json]") {
  const std::string text = GENERATE(R"({"a":[1,"],"]})", R"([1,[2,null]])", "[1,true]");
  NumberLists lists;
  const bool is_cut = lists.Cut(text, NumberLists::Ends::kAtBracket);
  CHECK_FALSE((is_cut && lists.AreSound()));
  REQUIRE(lists.Cut(text, NumberLists::Ends::kChecked));
  CHECK(lists.rest() == text);
}

TEST_CASE("Lists inside lists are found in one pass over the text", "[json]") {
  // 16 MiB. A search to the far bracket for each list would take a quarter of an hour.
  std::string text = R"({"x":)";
  while (text.size() < (16 << 20)) text += "[1,";
  text += "1]}";
  NumberLists lists;
  REQUIRE(lists.Cut(text, NumberLists::Ends::kChecked));
  CHECK(lists.size() == 1);
  text.resize(text.size() - 2);
  CHECK_FALSE(lists.Cut(text, NumberLists::Ends::kChecked));
}

TEST_CASE("A list that no reader takes is checked", "[json]") {
  NumberLists lists;
  REQUIRE(lists.Cut("[[1,02],[3]]", NumberLists::Ends::kChecked));
  CHECK_FALSE(lists.AreSound());
  lists.Take(0);
  CHECK(lists.AreSound());
}

TEST_CASE("A fault has the index and the text of the element", "[json]") {
  std::string packed;
  const auto first = PackNumbers<int32_t>(" 4294967296 , 2", &packed);
  REQUIRE(first);
  CHECK(first->index == 0);
  CHECK(first->text == "4294967296");
  std::string many = "0";
  for (int i = 1; i < 1000; ++i) many += ",0";
  const std::string wrong = many + ", 1.5 ,2";
  const auto late = PackNumbers<int64_t>(wrong, &packed);
  REQUIRE(late);
  CHECK(late->index == 1000);
  CHECK(late->text == "1.5");
  CHECK(CountNumbers(many) == 1000);
}

TEST_CASE("Numbers are what JSON calls so, and nothing else is", "[json]") {
  const auto text = GENERATE(as<std::string>(), "", " ", "1,", ",1", "1,,2", "1 2", "01", "-", "+1",
                             "1.", ".5", "1e", "1e+", "1,null", "NaN", "Infinity", "0x1", "1;2",
                             "1,[2", "1,\"2\"", "1,{}", "1e9999999");
  CAPTURE(text);
  CHECK_FALSE(Reads<float>(text));
  CHECK_FALSE(Reads<int64_t>(text));
}

TEST_CASE("Numbers beyond 64 bits or a double are faults, smaller ones are 0", "[json]") {
  CHECK_FALSE(Reads<float>("1e400"));
  CHECK_FALSE(Reads<float>("-1e0000400"));
  CHECK_FALSE(Reads<float>("1234567890123456789012"));
  CHECK_FALSE(Reads<float>("-18446744073709551615"));
  CHECK_FALSE(Reads<int64_t>("9223372036854775808"));
  CHECK_FALSE(Reads<int32_t>("9223372036854775807"));
  std::string packed;
  REQUIRE(!PackNumbers<float>("1e-400,1e0000002,18446744073709551615,-1e-9999999", &packed));
  CHECK(Unpacked<float>(packed) == std::vector<float>{0, 100, 18446744073709551616.0f, 0});
  REQUIRE(!PackNumbers<int64_t>("9223372036854775807,-9223372036854775808", &packed));
  CHECK(Unpacked<int64_t>(packed) == std::vector<int64_t>{std::numeric_limits<int64_t>::max(),
                                                          std::numeric_limits<int64_t>::min()});
}

TEST_CASE("Integers keep to their kind and range", "[json]") {
  std::string packed;
  REQUIRE(!PackNumbers<int32_t>(" 0 ,\n-1\t,2147483647,-2147483648", &packed));
  CHECK(Unpacked<int32_t>(packed) ==
        std::vector<int32_t>{0, -1, 2147483647, std::numeric_limits<int32_t>::min()});
  CHECK_FALSE(Reads<int32_t>("2147483648"));
  CHECK_FALSE(Reads<int32_t>("1.0"));
  CHECK_FALSE(Reads<int64_t>("1e2"));
  REQUIRE(!PackNumbers<int64_t>("999999999999999999,-7", &packed));
  CHECK(Unpacked<int64_t>(packed) == std::vector<int64_t>{999999999999999999, -7});
}

TEST_CASE("Floats are bit for bit those of a document", "[json]") {
  std::mt19937_64 random(5);
  std::vector<std::string> texts = {"0",
                                    "-0",
                                    "-0.0",
                                    "1",
                                    "1.5",
                                    "1e5",
                                    "1E-5",
                                    "2e+3",
                                    "1e38",
                                    "3.5e38",
                                    "-1e39",
                                    "1e-46",
                                    "5e-324",

                                    "0.1",
                                    "16777217",
                                    "9007199254740993",
                                    "9007199254740993.0",
                                    "123456789012345678",
                                    "0.30000000000000004",
                                    "1e22",
                                    "1e23",
                                    "8.5e-23"};
  for (int i = 0; i < 20000; ++i) {
    const uint64_t bits = random();
    double value;
    std::memcpy(&value, &bits, sizeof(value));
    if (!std::isfinite(value)) continue;
    texts.push_back(i % 3 == 0   ? absl::StrFormat("%.17g", value)
                    : i % 3 == 1 ? absl::StrFormat("%.9g", value)
                                 : absl::StrFormat("%.4e", value));
    const double near = static_cast<double>(static_cast<int64_t>(bits)) * 1e-18;
    texts.push_back(absl::StrFormat("%.*g", 1 + static_cast<int>(bits % 17), near));
  }
  const std::string list = absl::StrJoin(texts, ",");
  std::string packed;
  REQUIRE(!PackNumbers<float>(list, &packed));
  const std::vector<float> values = Unpacked<float>(packed);
  const nlohmann::json expected = nlohmann::json::parse(absl::StrCat("[", list, "]"));
  REQUIRE(values.size() == expected.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const auto wanted = static_cast<float>(expected[i].get<double>());
    CAPTURE(texts[i], values[i], wanted);
    REQUIRE(std::bit_cast<uint32_t>(values[i]) == std::bit_cast<uint32_t>(wanted));
  }
}

}  // namespace
}  // namespace lathe::gateway
