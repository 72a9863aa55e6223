// Sampling engines on the ranks of axis tp, over a model with sharded logits. Every rank gets the
// same requests and must give the same outputs.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "services/worker/models/load_model.h"
#include "services/worker/sampling/sampling_engine.h"
#include "services/worker/testing/test_model.h"
#include "services/worker/testing/test_outputs.h"
#include "services/worker/testing/test_random_folder.h"
#include "services/worker/testing/test_requests.h"
#include "services/worker/testing/test_temp_dir.h"
#include "services/worker/testing/test_vocabulary.h"

namespace lathe::worker {
namespace {

DecoderSpec OddSpec() {
  DenseShape shape = SmallShape();
  shape.vocab_size = 94;  // with four ranks, the last one has padding
  shape.eos_token_ids = {93};
  return DenseDecoder(shape);
}

// Shards only the head: every rank has all hidden states and some columns of the logits.
class HeadShard : public ModelAround {
 public:
  HeadShard(const Model& model, const RankGroup& tp)
      : ModelAround(model), vocabulary_(TestVocabulary(model.spec().vocab_size, tp)) {
    part_ = WholeModel(model.spec());
    part_.place = {.index = tp.rank(), .size = tp.world()};
    part_.vocabulary = vocabulary_.own;
    part_.local.vocab_size = vocabulary_.own.padded_size();
  }
  const ModelPart& part() const override { return part_; }
  const RankGroup& tp() const override { return vocabulary_.tp; }
  at::Tensor Logits(const at::Tensor& h, const std::vector<Segment>& segments) const override {
    return ColumnsOf(ModelAround::Logits(h, segments), vocabulary_);
  }

 private:
  void BeforeLayer(const at::Tensor&) const override {}

  VocabularyShard vocabulary_;
  ModelPart part_;
};

Outputs RunAlone(const Model& model, const std::vector<Asked>& all) {
  // The limits are so small that prompts run in chunks and samples are preempted.
  SamplingEngine engine(
      model,
      {.kv_cache_bytes = 400 * KvCache::BytesPerToken(model.part().local, MatmulArithmetic::kFp32),
       .max_prefill_tokens = 23,
       .head_chunk_elements = 94 * 5},
      nullptr);
  Outputs outputs;
  for (const Asked& asked : all) {
    TORCH_CHECK(engine.Add(asked.request, asked.adapter).ok());
    engine.RunPass();
  }
  for (int pass = 0; engine.HasWork(); ++pass) {
    TORCH_CHECK(pass < 10000);
    engine.RunPass();
    for (FinishedSample& finished : engine.TakeFinished()) {
      outputs.emplace(finished.request_id, std::move(finished.output));
    }
  }
  return outputs;
}

std::vector<Outputs> RunAsRanks(const Model& model, const std::vector<Asked>& all, int world) {
  return AsRanks(TestBackend::kLocal, world, [&](Collectives& ranks) {
    return RunAlone(HeadShard(model, RankGroup(ranks)), all);
  });
}

TEST_CASE("Sharded sampling: ranks that have parts of the logits give what one rank gives",
          "[sampling]") {
  const int world = GENERATE(2, 4);
  const Decoder model = SmallModel(OddSpec());
  std::vector<Asked> all;
  for (uint32_t index = 0; index < 20; ++index) all.push_back(AskFor(index));
  const Outputs alone = RunAlone(model, all);
  const std::vector<Outputs> ranks = RunAsRanks(model, all, world);
  REQUIRE(alone.size() == all.size());
  for (const auto& [id, output] : alone) {
    CAPTURE(world, id);
    REQUIRE(output.ok());
    Compare(*ranks[0].at(id), *output, IsClose);
    for (const Outputs& rank : ranks) Compare(*rank.at(id), *ranks[0].at(id), SameBits);
  }
}

// Ranks shard the whole model. Of 4 ranks, two have the same one of the 2 KV heads.
TEST_CASE("Sharded sampling: ranks of axis tp give what one rank gives", "[sampling]") {
  const int world = GENERATE(2, 4);
  const TempDir folder;
  WriteRandomFolder(folder.path(), {.num_heads = 8, .num_kv_heads = 2, .vocab_size = 94});
  std::vector<Asked> all;
  for (uint32_t index = 0; index < 12; ++index) all.push_back(AskFor(index));
  const auto run = [&](const RankGroup& tp) {
    const auto loaded = LoadModel(folder.path(), at::kCPU, nullptr, ComputeDtype::kFp32, tp);
    TORCH_CHECK(loaded.ok());
    return RunAlone(*loaded->model, all);
  };
  const Outputs alone = run({});
  const auto ranks = AsRanks(TestBackend::kSharedMemory, world,
                             [&](Collectives& collectives) { return run(RankGroup(collectives)); });
  REQUIRE(alone.size() == all.size());
  for (const auto& [id, output] : alone) {
    CAPTURE(world, id);
    Compare(*ranks[0].at(id), *output, IsClose);
    for (const Outputs& rank : ranks) Compare(*rank.at(id), *ranks[0].at(id), SameBits);
  }
}

TEST_CASE("Sharded sampling: logits that are not finite on one rank fail the request on all",
          "[sampling]") {
  DecoderWeights weights = SmallWeights(OddSpec());
  at::Tensor lm_head = weights.lm_head[0].ToTensor().clone();
  lm_head[30][0] = std::numeric_limits<float>::quiet_NaN();  // on rank 1 of 4
  weights.lm_head = {BaseWeight(lm_head)};
  const Decoder model(WholeModel(OddSpec()), std::move(weights));
  std::vector<Asked> all;
  for (uint32_t index = 0; index < 4; ++index) {
    all.push_back({.request = {.request_id = std::to_string(index),
                               .prompt = {1, 2, 3},
                               .params = {.max_tokens = 4, .temperature = index * 0.5}}});
  }
  all.back().request.params.top_k = 5;
  for (const Outputs& rank : RunAsRanks(model, all, 4)) {
    REQUIRE(rank.size() == 4);
    for (const auto& [id, output] : rank) {
      CHECK(output.status().code() == absl::StatusCode::kFailedPrecondition);
    }
  }
}

}  // namespace
}  // namespace lathe::worker
