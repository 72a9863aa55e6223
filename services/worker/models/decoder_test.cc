#include "services/worker/models/decoder.h"

#include <catch2/catch.hpp>
#include <functional>
#include <string>
#include <utility>

#include "services/worker/models/families/families.h"
#include "services/worker/testing/test_model.h"
#include "services/worker/testing/test_model_folder.h"
#include "services/worker/testing/test_temp_dir.h"

namespace lathe::worker {

TEST_CASE("CheckSupported: a value that the decoder does not implement is named", "[models]") {
  using Change = std::function<void(DecoderSpec&)>;
  const auto [change, named] = GENERATE(table<Change, std::string>({
      {[](DecoderSpec& s) { s.layers[1].attention.num_heads = 8; }, "num_attention_heads is 8"},
      {[](DecoderSpec& s) { s.layers[1].attention.num_kv_heads = 4; }, "num_key_value_heads is 4"},
      {[](DecoderSpec& s) { s.layers[1].attention.head_dim = 8; }, "head_dim is 8 in layer 1"},
      {[](DecoderSpec& s) { s.layers[1].attention.soft_cap = 30; }, "attn_logit_softcapping is 30"},
  }));
  DecoderSpec spec = SmallSpec();
  REQUIRE(CheckSupported(spec).ok());
  change(spec);
  const absl::Status status = CheckSupported(spec);
  REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(status.message()), Catch::Contains(named));
}

TEST_CASE("Decoder: the scale of the embedding does not reach the head", "[models]") {
  DecoderSpec scaled_spec = SmallSpec();
  scaled_spec.embedding_scale = 8;
  const Decoder plain = SmallModel();
  const Decoder scaled = SmallModel(scaled_spec);
  const PackedRows rows{.tokens = at::arange(5, at::kLong)};
  const at::Tensor x = plain.Embed(rows);
  CHECK(at::equal(scaled.Embed(rows), x * 8));
  CHECK(at::equal(scaled.Logits(x, {}), plain.Logits(x, {})));
}

TEST_CASE("ReadDecoderWeights: the offset of norms is added in fp32", "[models]") {
  auto tensors = SmallTensors();
  tensors["model.norm.weight"] = at::full({4}, 1e-4).to(at::kBFloat16);
  const TempDir dir;
  WriteModelFolder(dir.path(), tensors);
  absl::StatusOr<DecoderSpec> spec = ReadModelConfig(dir.path());
  REQUIRE(spec.ok());
  spec->norm_offset = 1;
  auto folder = HfTensors::Open(dir.path(), /*progress=*/nullptr);
  REQUIRE(folder.ok());
  const auto weights = ReadDecoderWeights(WholeModel(*spec), *folder, at::kCPU);
  REQUIRE(weights.ok());
  const at::Tensor& norm = weights->vectors[spec->vectors->final_norm];
  CHECK(at::equal(norm, tensors["model.norm.weight"].to(at::kFloat) + 1));
  CHECK(norm[0].item<float>() > 1);  // bf16 would lose the weight
}

}  // namespace lathe::worker
