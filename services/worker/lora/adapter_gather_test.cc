#include "services/worker/lora/adapter_gather.h"

#include <catch2/catch.hpp>

#include "services/worker/testing/test_parts.h"
#include "services/worker/testing/test_rank_groups.h"

namespace lathe::worker {
namespace {

const LoraSpec kLora{.rank = 3, .seed = 5};

Adapter RandomWhole(const DecoderSpec& spec) {
  Adapter adapter(WholeModel(spec), kLora, at::kCPU);
  adapter.MutableParameters().normal_();
  adapter.exp_avg.normal_();
  adapter.exp_avg_sq.uniform_();
  adapter.num_steps = 7;
  adapter.applied_seq = 41;
  return adapter;
}

}  // namespace

TEST_CASE("AdapterMatrix: features of other ranks are those of their layouts", "[lora]") {
  const DecoderSpec spec = TestSpec(GENERATE(1, 2));
  const int64_t tp = GENERATE(1, 2, 4);
  const std::vector<ModelPart> parts = TestParts(spec, tp);
  for (const AdapterMatrix& matrix : AdapterLayout(parts[0], kLora)) {
    for (const ModelPart& part : parts) {
      for (const AdapterMatrix& other : AdapterLayout(part, kLora)) {
        if (other.name() != matrix.name()) continue;
        const Shard features = matrix.FeaturesOf(part.place.index);
        CHECK(features.begin == other.features.begin);
        CHECK(features.size == other.features.size);
        CHECK(features.padding == other.features.padding);
      }
    }
  }
}

TEST_CASE("GatherAdapter: the first rank gets what the parts were cut from, the others nothing",
          "[lora][ranks]") {
  const DecoderSpec spec = TestSpec(GENERATE(1, 2));
  const int tp = GENERATE(1, 2, 4);
  const Adapter whole = RandomWhole(spec);
  const auto gathered = AsMesh(1, tp, [&](const RankGroups& ranks) {
    const ModelPart part = TestPart(spec, ranks.tp.rank(), tp);
    Adapter adapter(part, kLora, CutFlat(whole.parameters(), part, kLora));
    adapter.exp_avg = CutFlat(whole.exp_avg, part, kLora);
    adapter.exp_avg_sq = CutFlat(whole.exp_avg_sq, part, kLora);
    adapter.num_steps = whole.num_steps;
    adapter.applied_seq = whole.applied_seq;
    return GatherAdapter(adapter, ranks.tp);
  });
  for (size_t rank = 1; rank < gathered.size(); ++rank) CHECK_FALSE(gathered[rank].has_value());
  const Adapter& first = gathered[0].value();
  CHECK(at::equal(first.parameters(), whole.parameters()));
  CHECK(at::equal(first.exp_avg, whole.exp_avg));
  CHECK(at::equal(first.exp_avg_sq, whole.exp_avg_sq));
  CHECK(first.num_steps == 7);
  CHECK(first.applied_seq == 41);
  CHECK_FALSE(first.gradient.defined());
}

TEST_CASE("PartOfWhole: every rank gets the part that it holds", "[lora]") {
  const DecoderSpec spec = TestSpec(GENERATE(1, 2));
  const Adapter whole = RandomWhole(spec);
  for (const ModelPart& part : TestParts(spec, GENERATE(1, 2, 4))) {
    const at::Tensor flat = PartOfWhole(whole.parameters(), part, kLora);
    CHECK(at::equal(flat, CutFlat(whole.parameters(), part, kLora)));
  }
}

}  // namespace lathe::worker
