#include "services/worker/lora/adapter_gather.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "services/worker/testing/test_parts.h"
#include "services/worker/testing/test_rank_groups.h"

namespace lathe::worker {
namespace {

const LoraSpec kLora{.rank = 3, .seed = 5};

Adapter RandomWhole(const DecoderSpec& spec) {
  Adapter adapter(WholeModel(spec), kLora, at::kCPU);
  adapter.MutableParameters().normal_();
  adapter.exp_avg.normal_();
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

TEST_CASE("GatherWhole: the first rank gets what the parts were cut from, the others no weights",
          "[lora][ranks]") {
  const DecoderSpec spec = TestSpec(GENERATE(1, 2));
  const int tp = GENERATE(1, 2, 4);
  const Adapter whole = RandomWhole(spec);
  using Gathered = std::pair<std::shared_ptr<const AdapterWeights>, at::Tensor>;
  const auto gathered = AsMesh(1, tp, [&](const RankGroups& ranks) -> Gathered {
    const ModelPart part = TestPart(spec, ranks.tp.rank(), tp);
    const Adapter adapter(part, kLora, CutFlat(whole.parameters(), part, kLora));
    const at::Tensor moment = at::full_like(whole.exp_avg, NAN);
    GatherWhole(CutFlat(whole.exp_avg, part, kLora), part, kLora, ranks.tp, moment);
    return {GatherWeights(adapter.Publish(), part, ranks.tp), moment};
  });
  for (size_t rank = 1; rank < gathered.size(); ++rank) CHECK(gathered[rank].first == nullptr);
  CHECK(at::equal(gathered[0].first->tensors.flat, whole.parameters()));
  CHECK(at::equal(gathered[0].second, whole.exp_avg));
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
