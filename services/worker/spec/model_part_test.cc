#include "services/worker/spec/model_part.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "services/worker/spec/dense_decoder.h"

namespace lathe::worker {

namespace {

DenseShape Shape() {
  return {.family = "qwen3",
          .num_layers = 2,
          .hidden_size = 12,
          .intermediate_size = 24,
          .num_heads = 8,
          .num_kv_heads = 2,
          .head_dim = 4,
          .vocab_size = 37};
}

// A rank's outputs of layer 0's linear `row`: 0 queries, 1 keys, 4 gate.
Shard ShardOf(const ModelPart& part, int64_t row) {
  return OutputsOf(part, part.whole.linears->rows[row]).features;
}
Shard Queries(const ModelPart& part) { return ShardOf(part, 0); }
Shard Keys(const ModelPart& part) { return ShardOf(part, 1); }
Shard Gate(const ModelPart& part) { return ShardOf(part, 4); }

const LayerSpec& LocalLayer(const ModelPart& part) { return part.local.layers[0]; }

std::vector<ModelPart> AllParts(const DenseShape& shape, int64_t tp) {
  const DecoderSpec spec = DenseDecoder(shape);
  std::vector<ModelPart> all;
  for (int64_t index = 0; index < tp; ++index) {
    const auto part = ShardModel(spec, {.index = index, .size = tp});
    REQUIRE(part.ok());
    all.push_back(*part);
  }
  return all;
}

// Checks that the shards are consecutive from 0 to `whole` and equal in size, with padding.
void CheckCovers(const std::vector<Shard>& shards, int64_t whole) {
  int64_t covered = 0;
  for (const Shard& shard : shards) {
    CHECK(shard.begin == covered);
    CHECK(shard.size > 0);
    CHECK(shard.padded_size() == shards[0].padded_size());
    covered += shard.size;
  }
  CHECK(covered == whole);
}

void CheckRefused(const DenseShape& shape, int64_t tp, const std::string& message) {
  const DecoderSpec spec = DenseDecoder(shape);
  for (int64_t index = 0; index < tp; ++index) {
    const auto part = ShardModel(spec, {.index = index, .size = tp});
    REQUIRE(part.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK(part.status().message() == message);
  }
}

}  // namespace

TEST_CASE("ShardModel: one rank has the whole model", "[spec]") {
  const ModelPart part = AllParts(Shape(), 1)[0];
  CHECK(Queries(part).size == 32);
  CHECK(Keys(part).size == 8);
  CHECK(Gate(part).size == 24);
  CHECK(part.vocabulary.size == 37);
  CHECK(part.vocabulary.padding == 0);
  CHECK(part.num_kv_replicas == 1);
  CHECK(LocalLayer(part).attention.num_heads == 8);
  CHECK(LocalLayer(part).attention.num_kv_heads == 2);
  CHECK(LocalLayer(part).intermediate_size == 24);
  CHECK(part.local.vocab_size == 37);
}

TEST_CASE("ShardModel: the shards of all ranks cover every dimension once", "[spec]") {
  const int64_t tp = GENERATE(1, 2, 4, 8);
  DenseShape shape = Shape();
  shape.vocab_size = 61;
  std::vector<Shard> queries, keys, intermediate, vocabulary;
  for (const ModelPart& part : AllParts(shape, tp)) {
    queries.push_back(Queries(part));
    intermediate.push_back(Gate(part));
    vocabulary.push_back(part.vocabulary);
    // Counts only the first of several replicas.
    const auto rank = static_cast<int64_t>(queries.size()) - 1;
    if (rank % part.num_kv_replicas == 0) keys.push_back(Keys(part));
    CHECK(LocalLayer(part).attention.num_heads == 8 / tp);
    CHECK(LocalLayer(part).intermediate_size == 24 / tp);
    CHECK(part.local.hidden_size == 12);
  }
  CheckCovers(queries, 32);
  CheckCovers(keys, 8);
  CheckCovers(intermediate, 24);
  CheckCovers(vocabulary, 61);
}

TEST_CASE("ShardModel: every query head lies where its keys are", "[spec]") {
  const int64_t num_kv_heads = GENERATE(1, 2, 4, 8);
  const int64_t tp = GENERATE(1, 2, 4, 8);
  DenseShape shape = Shape();
  shape.num_kv_heads = num_kv_heads;
  shape.vocab_size = 128;
  const int64_t group = shape.num_heads / num_kv_heads;
  for (const ModelPart& part : AllParts(shape, tp)) {
    const int64_t first_query = Queries(part).begin / shape.head_dim;
    const int64_t first_key = Keys(part).begin / shape.head_dim;
    // Attention divides its query heads evenly among its KV heads.
    const int64_t local_group =
        LocalLayer(part).attention.num_heads / LocalLayer(part).attention.num_kv_heads;
    for (int64_t head = 0; head < LocalLayer(part).attention.num_heads; ++head) {
      CHECK((first_query + head) / group == first_key + head / local_group);
    }
  }
}

TEST_CASE("ShardModel: with more ranks than KV heads neighbours hold the same one", "[spec]") {
  const std::vector<ModelPart> all = AllParts(Shape(), 4);
  CHECK(all[0].num_kv_replicas == 2);
  CHECK(LocalLayer(all[0]).attention.num_kv_heads == 1);
  CHECK(Keys(all[0]).begin == 0);
  CHECK(Keys(all[1]).begin == 0);
  CHECK(Keys(all[2]).begin == 4);
  CHECK(Keys(all[3]).begin == 4);
}

TEST_CASE("ShardModel: the vocabulary is padded to whole blocks of random bits", "[spec]") {
  for (const ModelPart& part : AllParts(Shape(), 4)) {
    CHECK(part.vocabulary.begin % 4 == 0);
    CHECK(part.local.vocab_size == 12);
  }
  const Shard last = AllParts(Shape(), 4)[3].vocabulary;
  CHECK(last.size == 1);
  CHECK(last.padding == 11);
}

TEST_CASE("ShardModel: nine heads over three KV heads are served by three ranks", "[spec]") {
  DenseShape smollm2 = Shape();
  smollm2.num_heads = 9;
  smollm2.num_kv_heads = 3;
  for (const ModelPart& part : AllParts(smollm2, 3)) {
    CHECK(LocalLayer(part).attention.num_heads == 3);
    CHECK(LocalLayer(part).attention.num_kv_heads == 1);
  }
  CheckRefused(smollm2, 2, "num_attention_heads is 9, not a multiple of tp 2");
}

TEST_CASE("ShardModel: a dimension that cannot be split is refused by name", "[spec]") {
  DenseShape shape = Shape();
  SECTION("heads") { CheckRefused(shape, 3, "num_attention_heads is 8, not a multiple of tp 3"); }
  SECTION("KV heads") {
    shape.num_heads = 12;
    shape.num_kv_heads = 3;
    CheckRefused(shape, 4, "num_key_value_heads is 3, neither a multiple nor a divisor of tp 4");
  }
  SECTION("MLP") {
    shape.intermediate_size = 22;
    CheckRefused(shape, 4, "intermediate_size is 22, not a multiple of tp 4");
  }
  SECTION("vocabulary") {
    shape.vocab_size = 12;
    CheckRefused(shape, 4, "vocab_size is 12, with tp 4 rank 3 has the tokens from 12 on: none");
  }
}

}  // namespace lathe::worker
