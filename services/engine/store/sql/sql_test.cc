#include <catch2/catch.hpp>

#include "services/engine/store/sql/row_codec.h"
#include "services/engine/store/sql/writes.h"

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

TEST_CASE("Modules survive with their families and order, and no list stays empty", "[store]") {
  const std::vector<LoraModule> modules = {{"lm_head", LoraFamily::kUnembedding},
                                           {"router", LoraFamily::kMlp},
                                           {"q_proj", LoraFamily::kAttention}};
  CHECK(EncodeLoraModules(modules) == "lm_head:2,router:1,q_proj:0");
  CHECK(DecodeLoraModules(EncodeLoraModules(modules)) == modules);
  CHECK(DecodeLoraModules("").empty());
}

TEST_CASE("UpsertSql: an update changes neither the key nor the columns to keep", "[store]") {
  CHECK(UpsertSql("t", "a, b, c", "a") ==
        "INSERT INTO t (a, b, c) VALUES (?, ?, ?)"
        " ON CONFLICT (a) DO UPDATE SET b = excluded.b, c = excluded.c");
  CHECK(UpsertSql("t", "a, b, c, d", "a, b", "d") ==
        "INSERT INTO t (a, b, c, d) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (a, b) DO UPDATE SET c = excluded.c");
}

}  // namespace
}  // namespace lathe::engine
