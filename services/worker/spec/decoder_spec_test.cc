#include "services/worker/spec/decoder_spec.h"

#include <catch2/catch.hpp>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "services/worker/spec/dense_decoder.h"

namespace lathe::worker {
namespace {

DenseShape TinyShape() {
  return {.family = "qwen3",
          .num_layers = 2,
          .hidden_size = 4,
          .intermediate_size = 6,
          .num_heads = 2,
          .num_kv_heads = 1,
          .head_dim = 2,
          .vocab_size = 8,
          .max_position_embeddings = 16,
          .rope = {.theta = 1e4},
          .tie_word_embeddings = true,
          .eos_token_ids = {5, 7}};
}

}  // namespace

// Checkpoints hold hashes of this text.
TEST_CASE("CanonicalText: the text of a Qwen3 model is the one of the first release", "[spec]") {
  CHECK(CanonicalText(DenseDecoder(TinyShape())) ==
        "family=qwen3;layers=2;hidden=4;intermediate=6;heads=2;kv_heads=1;head_dim=2;vocab=8;"
        "positions=16;eps=9.9999999999999995e-07;theta=10000;tied=1;bias=0;eos=5,7");
}

TEST_CASE("CanonicalText: every field that changes numbers changes the text", "[spec]") {
  const std::vector<std::function<void(DecoderSpec&)>> changes = {
      [](DecoderSpec&) {},
      [](DecoderSpec& s) { s.norm_offset = 1; },
      [](DecoderSpec& s) { s.embedding_scale = 2; },
      [](DecoderSpec& s) { s.ropes.push_back({.theta = 5}); },
      [](DecoderSpec& s) { s.ropes.push_back({.theta = 6}); },
      [](DecoderSpec& s) { s.ropes[0].type = RopeType::kLinear; },
      [](DecoderSpec& s) { s.ropes[0].factor = 4; },
      [](DecoderSpec& s) { s.layers[0].attention.window = 8; },
      [](DecoderSpec& s) { s.layers[1].attention.window = 8; },
      [](DecoderSpec& s) { s.layers[1].attention.rope = 1; },
      [](DecoderSpec& s) { s.layers[1].attention.rope = kNoRope; },
      [](DecoderSpec& s) { s.layers[1].attention.scale = 1; },
      [](DecoderSpec& s) { s.layers[1].attention.soft_cap = 50; },
      [](DecoderSpec& s) { s.layers[1].attention.num_kv_heads = 2; },
      [](DecoderSpec& s) { s.layers[1].intermediate_size = 8; },
      [](DecoderSpec& s) { s.layers[0].activation = Activation::kGeluTanh; },
  };
  std::set<std::string> texts;
  for (const auto& change : changes) {
    DecoderSpec spec = DenseDecoder(TinyShape());
    change(spec);
    texts.insert(CanonicalText(spec));
  }
  CHECK(texts.size() == changes.size());
}

TEST_CASE("DenseDecoder: the tables have the tensors of a folder, layer by layer", "[spec]") {
  DenseShape shape = TinyShape();
  shape.has_qkv_bias = true;
  const DecoderSpec spec = DenseDecoder(shape);
  std::vector<std::string> names;
  for (const LinearSpec& linear : spec.linears->rows) {
    names.push_back(linear.source + (linear.has_bias ? "+" : ""));
  }
  const std::string layer = "model.layers.1.";
  CHECK(names.size() == 2 * 7 + 1);
  CHECK(std::vector(names.begin() + 7, names.end()) ==
        std::vector<std::string>{layer + "self_attn.q_proj+", layer + "self_attn.k_proj+",
                                 layer + "self_attn.v_proj+", layer + "self_attn.o_proj",
                                 layer + "mlp.gate_proj", layer + "mlp.up_proj",
                                 layer + "mlp.down_proj", "lm_head"});
  CHECK(AdaptableModules(*spec.linears) == DenseLoraModules());
  CHECK(spec.linears->rows[7].module() == "q_proj");
  CHECK(spec.linears->rows[14].module() == "lm_head");
  CHECK(spec.linears->stacks[spec.layers[1].gate_up].first == 7 + 4);
  CHECK(spec.linears->stacks.back().unit == 5);
  CHECK(spec.vectors->rows[spec.layers[1].k_norm].source == layer + "self_attn.k_norm.weight");
  CHECK(spec.vectors->rows[spec.vectors->final_norm].source == "model.norm.weight");
}

TEST_CASE("AdaptableModules: those of all layers, each once, in the order of the table", "[spec]") {
  const LinearTable table{
      .rows = {{.name = "model.layers.0.attn.q_proj"},
               {.name = "model.layers.0.attn.v_proj"},
               {.name = "model.layers.1.attn.q_proj"},
               {.name = "model.layers.1.mlp.router", .group = LoraFamily::kMlp},
               {.name = "model.layers.2.mlp.router", .group = LoraFamily::kMlp}}};
  CHECK(AdaptableModules(table) == std::vector<LoraModule>{{"q_proj", LoraFamily::kAttention},
                                                           {"v_proj", LoraFamily::kAttention},
                                                           {"router", LoraFamily::kMlp}});
}

}  // namespace lathe::worker
