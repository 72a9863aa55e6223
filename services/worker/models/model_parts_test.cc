#include <catch2/catch.hpp>

#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

#include "services/worker/kernels/cpu/matmul/weight_matmul.h"
#include "services/worker/lora/adapter.h"
#include "services/worker/models/load_model.h"
#include "services/worker/models/packed_attention.h"
#include "services/worker/testing/test_parts.h"
#include "services/worker/testing/test_random_folder.h"
#include "services/worker/testing/test_rank_groups.h"
#include "services/worker/testing/test_ranks.h"
#include "services/worker/testing/test_temp_dir.h"

namespace lathe::worker {
namespace {

struct Case {
  std::string name;
  int tp = 2;
  RandomFolder folder;
  ComputeDtype compute_dtype = ComputeDtype::kFp32;
  double tolerance = 2e-5;
};

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

std::vector<Case> Cases() {
  std::vector<Case> cases = {
      {.name = "2 ranks"},
      {.name = "2 ranks, untied, biases", .folder = {.is_tied = false, .has_bias = true}},
      {.name = "2 ranks, 1 KV head", .folder = {.num_kv_heads = 1, .has_bias = true}},
      {.name = "4 ranks, a KV head each", .tp = 4, .folder = {.num_heads = 8, .num_kv_heads = 4}},
      {.name = "4 ranks, 2 KV heads", .tp = 4, .folder = {.has_bias = true}},
      {.name = "4 ranks, 1 KV head", .tp = 4, .folder = {.num_kv_heads = 1, .is_tied = false}},
      {.name = "2 ranks, bf16 widened", .folder = {.dtype = at::kBFloat16}}};
  // bf16 rounds each rank's sums before they are added.
  if (CpuHasBf16()) {
    cases.push_back({.name = "2 ranks, bf16",
                     .folder = {.dtype = at::kBFloat16},
                     .compute_dtype = ComputeDtype::kBf16,
                     .tolerance = 0.05});
  }
  return cases;
}

const LoraSpec kLora{.rank = 3, .seed = 1};
constexpr int64_t kNumRows = 11;
constexpr int64_t kSplit = 7;  // the first sequence ends here

PackedRows MakeRows(const AdapterWeights& adapter, int64_t vocab_size) {
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(8);
  return {.tokens = at::randint(vocab_size, {kNumRows}, generator, at::kLong),
          .positions = at::cat({at::arange(kSplit), at::arange(kNumRows - kSplit)}),
          .cu_seqlens = {0, kSplit, kNumRows},
          .segments = {{.begin = 0, .end = 5, .adapter = &adapter, .gradient_index = 0},
                       {.begin = 5, .end = 6},
                       {.begin = 6, .end = kNumRows, .adapter = &adapter, .gradient_index = 0}}};
}

struct Pass {
  ModelPart part;
  std::string content_hash;
  std::vector<at::Tensor> hidden;  // by layer, the embedding first
  at::Tensor sampled;              // hidden states of the inference step
  at::Tensor logits;
  at::Tensor dh;
  at::Tensor dx;
  at::Tensor gradients;
  bool is_same_recomputed = false;
};

// The flat buffer of an adapter of the whole model.
at::Tensor AdapterNumbers(const DecoderSpec& spec) {
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(9);
  return at::randn({NumAdapterParameters(WholeModel(spec), kLora)}, generator, at::kFloat)
      .mul_(0.1);
}

// Forward and backward as a training pass does it, with given dlogits.
Pass Run(const std::filesystem::path& folder, const Case& c, const RankGroup& tp) {
  const auto loaded = LoadModel(folder, at::kCPU, nullptr, c.compute_dtype, tp);
  if (!loaded.ok()) return {.content_hash = std::string(loaded.status().message())};
  const Model& model = *loaded->model;
  const ModelPart& part = model.part();
  const DecoderSpec& spec = model.spec();
  Adapter adapter(part, kLora, CutFlat(AdapterNumbers(spec), part, kLora));
  const PackedRows rows = MakeRows(*adapter.Publish(), spec.vocab_size);
  AdapterGradients buffer = adapter.MakeGradients();
  std::vector<AdapterGradients*> gradients = {&buffer};

  Pass pass{.part = part, .content_hash = loaded->content_hash};
  std::vector<std::unique_ptr<LayerSaved>> saved(spec.num_layers());
  pass.hidden.push_back(model.Embed(rows));
  for (int64_t layer = 0; layer < spec.num_layers(); ++layer) {
    const at::Tensor x = pass.hidden.back();
    pass.hidden.push_back(model.LayerForwardSaving(layer, x, rows, &saved[layer]));
  }
  pass.sampled = pass.hidden[0];
  for (int64_t layer = 0; layer < spec.num_layers(); ++layer) {
    PackedAttention attention(rows, model.attention_arithmetic());
    pass.sampled = model.LayerForward(layer, pass.sampled, rows, attention);
  }
  const at::Tensor h = model.FinalNorm(pass.hidden.back());
  pass.logits = model.Logits(h, rows.segments);

  const Shard& own = part.vocabulary;
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(10);
  const at::Tensor all = at::randn({kNumRows, spec.vocab_size}, generator, at::kFloat);
  all[5].fill_(0);  // row 5 has no adapter
  const at::Tensor dlogits = at::zeros_like(pass.logits);
  dlogits.narrow(1, 0, own.size).copy_(all.narrow(1, own.begin, own.size));
  pass.dh = model.LogitsBackward(h, dlogits, rows.segments, gradients);
  tp.Sum("dh", pass.dh);
  pass.dx = model.FinalNormBackward(pass.hidden.back(), pass.dh);
  for (int64_t layer = spec.num_layers() - 1; layer >= 0; --layer) {
    AdapterGradients again = adapter.GradientsOver(buffer.tensors.flat.clone());
    std::vector<AdapterGradients*> again_list = {&again};
    const at::Tensor dx_again = model.LayerBackward(
        layer, pass.dx, rows, model.LayerRecompute(layer, pass.hidden[layer], rows), again_list);
    pass.dx = model.LayerBackward(layer, pass.dx, rows, std::move(saved[layer]), gradients);
    pass.is_same_recomputed =
        at::equal(dx_again, pass.dx) && at::equal(again.tensors.flat, buffer.tensors.flat);
    if (!pass.is_same_recomputed) break;
  }
  pass.gradients = buffer.tensors.flat;
  return pass;
}

double RelativeDiff(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).abs().max() / b.abs().max()).item<double>();
}

}  // namespace

TEST_CASE("Model: the parts of all ranks compute what one rank does", "[models][ranks]") {
  const std::vector<Case> cases = Cases();
  const Case& c = cases[GENERATE_COPY(range(size_t{0}, cases.size()))];
  INFO(c);
  const TempDir dir;
  WriteRandomFolder(dir.path(), c.folder);
  const Pass alone = Run(dir.path(), c, {});
  REQUIRE(alone.dx.defined());
  const std::vector<Pass> ranks = AsRanks(TestBackend::kLocal, c.tp, [&](Collectives& own) {
    return Run(dir.path(), c, RankGroup(own));
  });

  at::Tensor gradients = at::zeros_like(alone.gradients);
  for (const Pass& rank : ranks) {
    INFO("rank " << rank.part.place.index);
    REQUIRE(rank.content_hash == alone.content_hash);
    CHECK(at::equal(rank.hidden[0], alone.hidden[0]));  // one rank has the row, so the sum is exact
    for (size_t i = 0; i < alone.hidden.size(); ++i) {
      CHECK(at::equal(rank.hidden[i], ranks[0].hidden[i]));
      CHECK(RelativeDiff(rank.hidden[i], alone.hidden[i]) < c.tolerance);
    }
    CHECK(at::equal(rank.sampled, rank.hidden.back()));
    const Shard& own = rank.part.vocabulary;
    CHECK(RelativeDiff(rank.logits.narrow(1, 0, own.size),
                       alone.logits.narrow(1, own.begin, own.size)) < c.tolerance);
    CHECK(rank.logits.size(1) == ranks[0].logits.size(1));
    CHECK(at::eq(rank.logits.narrow(1, own.size, own.padding), -INFINITY).all().item<bool>());
    CHECK(at::equal(rank.dx, ranks[0].dx));
    CHECK(RelativeDiff(rank.dh, alone.dh) < c.tolerance);
    CHECK(RelativeDiff(rank.dx, alone.dx) < c.tolerance);
    CHECK(rank.is_same_recomputed);
    AddShare(gradients, rank.gradients, rank.part, kLora);
  }
  for (const AdapterMatrix& matrix : AdapterLayout(alone.part, kLora)) {
    INFO(matrix.name());
    CHECK(RelativeDiff(matrix.Of(gradients), matrix.Of(alone.gradients)) < c.tolerance);
  }
}

TEST_CASE("LoadModel: ranks that read parts and shares come to the hash of one that reads all",
          "[models][ranks]") {
  const auto [tp, fsdp] = GENERATE(table<int, int>({{1, 2}, {1, 3}, {2, 2}}));
  CAPTURE(tp, fsdp);
  const TempDir dir;
  WriteRandomFolder(dir.path(), {.is_tied = false, .has_bias = true});
  const auto alone = LoadModel(dir.path(), at::kCPU, nullptr);
  REQUIRE(alone.ok());
  std::vector<std::vector<double>> progress(tp * fsdp);  // by rank
  const auto hashes = AsMesh(
      fsdp, tp,
      [&](const RankGroups& groups) {
        std::vector<double>& seen = progress[groups.all.rank()];
        return LoadModel(
                   dir.path(), at::kCPU, [&](double fraction) { seen.push_back(fraction); },
                   ComputeDtype::kAuto, groups.tp, groups.fsdp)
            .value()
            .content_hash;
      },
      fsdp);
  REQUIRE(hashes.size() == static_cast<size_t>(tp * fsdp));
  for (const std::vector<double>& seen : progress) {
    CHECK(std::is_sorted(seen.begin(), seen.end()));
    REQUIRE_FALSE(seen.empty());
    CHECK(seen.back() == 1.0);
    // Progress of its part, then of the tensors that it hashes for all ranks.
    CHECK(std::count(seen.begin(), seen.end(), 0.5) == 1);
    CHECK(std::count_if(seen.begin(), seen.end(), [](double f) { return f > 0.5; }) > 1);
  }
  for (const std::string& hash : hashes) CHECK(hash == alone->content_hash);
}

TEST_CASE("LoadModel: an error of one rank reaches all ranks", "[models][ranks]") {
  const std::string axis = GENERATE("tp", "fsdp");
  const TempDir good, bad;
  const RandomFolder folder;
  WriteRandomFolder(good.path(), folder);
  absl::StatusCode code{};
  std::string message;
  SECTION("no folder") {
    code = absl::StatusCode::kNotFound;
    message = "rank 1 of " + axis + ": ";
  }
  SECTION("another config") {
    WriteRandomFolder(bad.path(), folder);
    nlohmann::json config = ConfigOf(folder);
    config["rope_theta"] = 2e4;
    std::ofstream(bad.path() / "config.json") << config.dump();
    code = absl::StatusCode::kFailedPrecondition;
    message = "the model folder of rank 1 of " + axis + " has another config than that of rank 0";
  }
  SECTION("other tensors") {
    RandomFolder other = folder;
    other.dtype = at::kBFloat16;
    WriteRandomFolder(bad.path(), other);
    code = absl::StatusCode::kFailedPrecondition;
    message = "the model folder of rank 1 of " + axis +
              " has another layout of tensors than that of rank 0";
  }
  SECTION("other numbers") {
    RandomFolder other = folder;
    ++other.seed;
    WriteRandomFolder(bad.path(), other);
    code = absl::StatusCode::kFailedPrecondition;
    message = "the model folder of rank 1 of " + axis +
              " has another content of tensors than that of rank 0";
  }
  const auto statuses = AsRanks(TestBackend::kLocal, 2, [&](Collectives& own) {
    const RankGroup ranks(own);
    const auto& path = (ranks.rank() == 1 ? bad : good).path();
    const bool is_tp = axis == "tp";
    return LoadModel(path, at::kCPU, nullptr, ComputeDtype::kFp32, is_tp ? ranks : RankGroup(),
                     is_tp ? RankGroup() : ranks)
        .status();
  });
  for (const absl::Status& status : statuses) {
    CHECK(status.code() == code);
    CHECK_THAT(std::string(status.message()), Catch::Contains(message));
  }
}

}  // namespace lathe::worker
