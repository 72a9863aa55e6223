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
  return PackNumbers<T>(text, &packed);
}

TEST_CASE("Lists of numbers are cut out, all else stays", "[json]") {
  std::string rest;
  std::vector<std::string_view> lists;
  REQUIRE(CutNumberLists(R"({"a":[1,2 ],"b":[ -3.5e1 ],"c":[],"d":["[1]"],"\"[7]":[{"e":[0]}]})",
                         &rest, &lists));
  CHECK(rest == R"({"a":[0],"b":[1],"c":[],"d":["[1]"],"\"[7]":[{"e":[2]}]})");
  CHECK(lists == std::vector<std::string_view>{"1,2 ", " -3.5e1 ", "0"});
  CHECK_FALSE(CutNumberLists(R"({"a":[1,2)", &rest, &lists));
  CHECK_FALSE(CutNumberLists(R"({"a)", &rest, &lists));
}

TEST_CASE("Numbers are what JSON calls so, and nothing else is", "[json]") {
  const auto text = GENERATE(as<std::string>(), "", " ", "1,", ",1", "1,,2", "1 2", "01", "-", "+1",
                             "1.", ".5", "1e", "1e+", "1,null", "NaN", "Infinity", "0x1", "1;2",
                             "1,[2", "1,\"2\"", "1,{}", "1e9999999");
  CAPTURE(text);
  CHECK_FALSE(Reads<float>(text));
  CHECK_FALSE(Reads<int64_t>(text));
}

TEST_CASE("What a double cannot hold is left to the document's reader", "[json]") {
  CHECK_FALSE(Reads<float>("1e400"));
  CHECK_FALSE(Reads<float>("1e-400"));
  CHECK_FALSE(Reads<float>("1234567890123456789012"));
}

TEST_CASE("Integers keep to their kind and range", "[json]") {
  std::string packed;
  REQUIRE(PackNumbers<int32_t>(" 0 ,\n-1\t,2147483647,-2147483648", &packed));
  CHECK(Unpacked<int32_t>(packed) ==
        std::vector<int32_t>{0, -1, 2147483647, std::numeric_limits<int32_t>::min()});
  CHECK_FALSE(Reads<int32_t>("2147483648"));
  CHECK_FALSE(Reads<int32_t>("1.0"));
  CHECK_FALSE(Reads<int64_t>("1e2"));
  REQUIRE(PackNumbers<int64_t>("999999999999999999,-7", &packed));
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
  REQUIRE(PackNumbers<float>(list, &packed));
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
