#include <catch2/catch.hpp>

#include <set>
#include <string>

#include "services/worker/lora/adapter.h"
#include "services/worker/lora/adapter_layout.h"
#include "services/worker/testing/test_parts.h"

namespace lathe::worker {
namespace {

const LoraSpec kPartsLora{.rank = 3, .seed = 5};

}  // namespace

TEST_CASE("AdapterLayout: parts have the names, the order and the ranges of their sharing",
          "[lora]") {
  const ModelPart whole = WholeModel(TestSpec());
  CHECK(SizesOfAdapter(whole, kPartsLora).sharded == NumAdapterParameters(whole, kPartsLora));
  for (const ModelPart& part : TestParts(TestSpec(), 4)) {
    const std::vector<AdapterMatrix> layout = AdapterLayout(part, kPartsLora);
    const AdapterSizes sizes = SizesOfAdapter(part, kPartsLora);
    int64_t next[] = {0, sizes.summed, sizes.summed + sizes.shared};
    REQUIRE(layout.size() == AdapterLayout(whole, kPartsLora).size());
    for (size_t i = 0; i < layout.size(); ++i) {
      CHECK(layout[i].name() == AdapterLayout(whole, kPartsLora)[i].name());
      CHECK((layout[i].is_b ? layout[i].cols : layout[i].rows) == 3);
      const int range = layout[i].num_holders == 4 ? 0 : layout[i].num_holders == 2 ? 1 : 2;
      CHECK(layout[i].offset == next[range]);
      next[range] += layout[i].num_elements();
    }
    CHECK(next[0] == sizes.summed);
    CHECK(next[1] == sizes.summed + sizes.shared);
    CHECK(next[2] == sizes.total());
    CHECK(sizes.shared == 2 * 2 * 3 * 6);  // layers, keys and values, rank, head size
    CHECK(sizes.total() == SizesOfAdapter(TestPart(TestSpec(), 0, 4), kPartsLora).total());
  }
}

TEST_CASE("AdapterLayout: factors are whole where their side of the base's matrix is", "[lora]") {
  std::set<std::string> whole_a;
  std::set<std::string> whole_b;
  for (const AdapterMatrix& matrix : AdapterLayout(TestPart(TestSpec(), 1, 2), kPartsLora)) {
    if (matrix.num_holders < 2) continue;
    (matrix.is_b ? whole_b : whole_a)
        .insert(matrix.linear_name.substr(matrix.linear_name.rfind('.') + 1));
  }
  CHECK(whole_a ==
        std::set<std::string>{"q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "lm_head"});
  CHECK(whole_b == std::set<std::string>{"o_proj", "down_proj"});
}

TEST_CASE("AdapterLayout: the one KV head of all ranks is summed like what is whole", "[lora]") {
  const AdapterSizes sizes = SizesOfAdapter(TestPart(TestSpec(1), 2, 4), kPartsLora);
  CHECK(sizes.shared == 0);
  for (const AdapterMatrix& matrix : AdapterLayout(TestPart(TestSpec(1), 2, 4), kPartsLora)) {
    const bool is_kv =
        matrix.linear_name.ends_with("k_proj") || matrix.linear_name.ends_with("v_proj");
    if (is_kv) CHECK(matrix.num_holders == 4);
  }
}

TEST_CASE("Adapter: parts start as what they are of the whole, bit for bit", "[lora]") {
  const DecoderSpec model = GENERATE(TestSpec(), TestSpec(1));
  const int64_t tp = GENERATE(2, 4);
  const Adapter whole(WholeModel(model), kPartsLora, at::kCPU);
  for (const ModelPart& part : TestParts(model, tp)) {
    const Adapter adapter(part, kPartsLora, at::kCPU);
    CHECK(at::equal(adapter.parameters(), CutFlat(whole.parameters(), part, kPartsLora)));
  }
}

TEST_CASE("Adapter: views of a part have the shapes of the part's linears", "[lora]") {
  const ModelPart part = TestPart(TestSpec(), 3, 4);
  Adapter adapter(part, kPartsLora, at::kCPU);
  const AdapterTensors& view = adapter.Publish()->tensors;
  // Layer 1: q, k, v, o, gate, up, down.
  const auto pair = [&](int64_t linear) { return view.linears[7 + linear]; };
  CHECK(pair(0).a.sizes() == at::IntArrayRef({3, 8}));
  CHECK(pair(0).b_t.sizes() == at::IntArrayRef({3, 6}));
  CHECK(pair(1).b_t.sizes() == at::IntArrayRef({3, 6}));
  CHECK(pair(3).a.sizes() == at::IntArrayRef({3, 6}));
  CHECK(pair(3).b_t.sizes() == at::IntArrayRef({3, 8}));
  CHECK(pair(6).a.sizes() == at::IntArrayRef({3, 3}));
  CHECK(view.linears.back().b_t.sizes() == at::IntArrayRef({3, part.local.vocab_size}));
  // The factor excludes the rows of padding tokens.
  const AdapterMatrix head = AdapterLayout(part, kPartsLora).back();
  CHECK(head.features.size == 5);
  CHECK(head.FactorOf(view.flat).sizes() == at::IntArrayRef({3, 5}));
}

}  // namespace lathe::worker
