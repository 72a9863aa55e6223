#include "services/engine/store/sql/row_codec.h"

#include <catch2/catch.hpp>

namespace lathe::engine {
namespace {

TEST_CASE("Metadata survives any bytes in names and values", "[store]") {
  const Metadata metadata = {{"a:1", ""}, {"", "5:x"}, {"n\0n", "\xff\n,"}};
  CHECK(DecodeMetadata(EncodeMetadata(metadata)) == metadata);
  CHECK(DecodeMetadata("").empty());
}

TEST_CASE("Metadata that was cut off is read up to the cut", "[store]") {
  const std::string text = EncodeMetadata({{"a", "1"}, {"b", "2"}});
  CHECK(DecodeMetadata(text.substr(0, text.size() - 1)) == Metadata{{"a", "1"}});
  CHECK(DecodeMetadata("99999999999999999999:x").empty());
}

TEST_CASE("Lists of strings survive, and an empty one stays empty", "[store]") {
  CHECK(DecodeStringList(EncodeStringList({"train", "sample"})) ==
        std::vector<std::string>{"train", "sample"});
  CHECK(DecodeStringList(EncodeStringList({})).empty());
}

}  // namespace
}  // namespace lathe::engine
