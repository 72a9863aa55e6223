#include "services/worker/models/decoder_weights.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "services/worker/models/families/families.h"
#include "services/worker/models/hf_tensors.h"
#include "services/worker/testing/test_random_folder.h"
#include "services/worker/testing/test_ranks.h"
#include "services/worker/testing/test_temp_dir.h"

namespace lathe::worker {
namespace {

using Tensors = std::map<std::string, at::Tensor>;

constexpr int64_t kHidden = 12, kQ = 32, kKv = 8, kMlp = 24, kHeadDim = 4;

nlohmann::json Config(int64_t vocab_size, bool is_tied) {
  nlohmann::json config = SmallConfig();
  config.update({{"num_hidden_layers", 2},
                 {"hidden_size", kHidden},
                 {"intermediate_size", kMlp},
                 {"num_attention_heads", kQ / kHeadDim},
                 {"num_key_value_heads", kKv / kHeadDim},
                 {"head_dim", kHeadDim},
                 {"vocab_size", vocab_size},
                 {"attention_bias", true},
                 {"tie_word_embeddings", is_tied}});
  return config;
}

Tensors RandomTensors(int64_t vocab_size, bool is_tied, at::ScalarType dtype) {
  std::map<std::string, std::vector<int64_t>> shapes = {
      {"model.embed_tokens.weight", {vocab_size, kHidden}}, {"model.norm.weight", {kHidden}}};
  if (!is_tied) shapes["lm_head.weight"] = {vocab_size, kHidden};
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    const std::string attention = layer + "self_attn.";
    shapes.insert({{layer + "input_layernorm.weight", {kHidden}},
                   {attention + "q_proj.weight", {kQ, kHidden}},
                   {attention + "k_proj.weight", {kKv, kHidden}},
                   {attention + "v_proj.weight", {kKv, kHidden}},
                   {attention + "q_proj.bias", {kQ}},
                   {attention + "k_proj.bias", {kKv}},
                   {attention + "v_proj.bias", {kKv}},
                   {attention + "q_norm.weight", {kHeadDim}},
                   {attention + "k_norm.weight", {kHeadDim}},
                   {attention + "o_proj.weight", {kHidden, kQ}},
                   {attention + "o_proj.bias", {kHidden}},
                   {layer + "post_attention_layernorm.weight", {kHidden}},
                   {layer + "mlp.gate_proj.weight", {kMlp, kHidden}},
                   {layer + "mlp.up_proj.weight", {kMlp, kHidden}},
                   {layer + "mlp.down_proj.weight", {kHidden, kMlp}}});
  }
  Tensors tensors;
  for (const auto& [name, shape] : shapes) tensors[name] = at::randn(shape).to(dtype);
  return tensors;
}

// One rank's result of reading.
struct Rank {
  ModelPart part;
  DecoderWeights weights;
  HfTensors tensors;
};

std::vector<Rank> ReadAllRanks(const std::filesystem::path& folder, int64_t tp) {
  const auto spec = ReadModelConfig(folder);
  REQUIRE(spec.ok());
  std::vector<Rank> ranks;
  for (int64_t index = 0; index < tp; ++index) {
    auto part = ShardModel(*spec, {.index = index, .size = tp});
    REQUIRE(part.ok());
    auto tensors = HfTensors::Open(folder, /*progress=*/nullptr);
    REQUIRE(tensors.ok());
    auto weights = ReadDecoderWeights(*part, *tensors, at::kCPU);
    REQUIRE(weights.ok());
    ranks.push_back({*std::move(part), *std::move(weights), *std::move(tensors)});
  }
  return ranks;
}

// Returns a rank's tensors under the folder's names, in `dtype`.
Tensors Named(const Rank& rank, bool is_tied, at::ScalarType dtype) {
  const DecoderWeights& weights = rank.weights;
  const LinearTable& linears = *rank.part.whole.linears;
  const VectorTable& vectors = *rank.part.whole.vectors;
  Tensors named;
  named["model.embed_tokens.weight"] = weights.embedding[0].ToTensor();
  if (!is_tied) named["lm_head.weight"] = weights.lm_head[0].ToTensor();
  for (size_t row = 0; row < vectors.rows.size(); ++row) {
    named[vectors.rows[row].source] = weights.vectors[row];
  }
  for (size_t i = 0; i < linears.stacks.size(); ++i) {
    const at::Tensor stacked = weights.stacks[i].ToTensor();
    int64_t row = 0;
    for (int64_t j = 0; j < linears.stacks[i].count; ++j) {
      const LinearSpec& linear = linears.rows[linears.stacks[i].first + j];
      const int64_t size = OutputsOf(rank.part, linear).features.size;
      named[linear.source + ".weight"] = stacked.narrow(0, row, size);
      if (linear.has_bias) named[linear.source + ".bias"] = weights.biases[i].narrow(0, row, size);
      row += size;
    }
    CHECK(row == stacked.size(0));
  }
  for (auto& [name, tensor] : named) tensor = tensor.to(dtype);
  return named;
}

bool HasEnd(const std::string& name, const std::vector<std::string>& ends) {
  return std::any_of(ends.begin(), ends.end(),
                     [&](const std::string& end) { return name.ends_with(end); });
}

bool IsOfKv(const std::string& name) {
  return HasEnd(name, {"k_proj.weight", "v_proj.weight", "k_proj.bias", "v_proj.bias"});
}
bool IsOfVocabulary(const std::string& name) {
  return HasEnd(name, {"embed_tokens.weight", "lm_head.weight"});
}
bool IsCutByColumns(const std::string& name) {
  return HasEnd(name, {"o_proj.weight", "down_proj.weight"});
}
bool IsCut(const std::string& name) {
  return IsOfKv(name) || IsOfVocabulary(name) || IsCutByColumns(name) ||
         HasEnd(name, {"q_proj.weight", "q_proj.bias", "gate_proj.weight", "up_proj.weight"});
}

}  // namespace

TEST_CASE("ReadDecoderWeights: the parts of all ranks are the whole tensors, bit for bit",
          "[models]") {
  const int64_t tp = GENERATE(1, 2, 4);
  const int64_t vocab_size = GENERATE(37, 48);
  const bool is_tied = GENERATE(false, true);
  const at::ScalarType dtype = GENERATE(at::kFloat, at::kBFloat16);
  const TempDir dir;
  const Tensors whole = RandomTensors(vocab_size, is_tied, dtype);
  WriteModelFolder(dir.path(), whole, Config(vocab_size, is_tied));

  std::map<std::string, std::vector<at::Tensor>> parts;
  for (const Rank& rank : ReadAllRanks(dir.path(), tp)) {
    for (const auto& [name, part] : Named(rank, is_tied, dtype)) parts[name].push_back(part);
    CHECK(rank.weights.embedding[0].dtype() == dtype);
    CHECK(rank.weights.lm_head[0].SharesMemoryWith(rank.weights.embedding[0]) == is_tied);
  }
  CHECK(parts.size() == whole.size());
  for (auto& [name, of_ranks] : parts) {
    INFO(name << " of tp " << tp);
    if (!IsCut(name)) {
      for (const at::Tensor& part : of_ranks) CHECK(at::equal(part, whole.at(name)));
      continue;
    }
    if (IsOfKv(name) && tp == 4) {
      CHECK(at::equal(of_ranks[0], of_ranks[1]));
      CHECK(at::equal(of_ranks[2], of_ranks[3]));
      of_ranks = {of_ranks[0], of_ranks[2]};
    }
    at::Tensor together = at::cat(of_ranks, IsCutByColumns(name) ? 1 : 0);
    if (IsOfVocabulary(name)) {
      const int64_t padding = together.size(0) - vocab_size;
      CHECK(together.narrow(0, vocab_size, padding).count_nonzero().item<int64_t>() == 0);
      together = together.narrow(0, 0, vocab_size);
    }
    CHECK(at::equal(together, whole.at(name)));
  }
}

TEST_CASE("ReadDecoderWeights: a rank reads its share of what is cut, and what is whole",
          "[models]") {
  const int64_t tp = GENERATE(1, 2, 4);
  const TempDir dir;
  const Tensors whole = RandomTensors(/*vocab_size=*/48, /*is_tied=*/false, at::kBFloat16);
  WriteModelFolder(dir.path(), whole, Config(/*vocab_size=*/48, /*is_tied=*/false));
  int64_t cut_bytes = 0, kv_bytes = 0, whole_bytes = 0;
  for (const auto& [name, tensor] : whole) {
    (IsOfKv(name)  ? kv_bytes
     : IsCut(name) ? cut_bytes
                   : whole_bytes) += static_cast<int64_t>(tensor.nbytes());
  }
  for (const Rank& rank : ReadAllRanks(dir.path(), tp)) {
    const int64_t num_kv_parts = std::min(tp, kKv / kHeadDim);
    CHECK(rank.tensors.read_bytes() == cut_bytes / tp + kv_bytes / num_kv_parts + whole_bytes);
  }
}

TEST_CASE("ReadDecoderWeights: the shares of all ranks are the whole part, bit for bit",
          "[models][ranks]") {
  const int fsdp = GENERATE(2, 3, 5);
  const int64_t tp = GENERATE(1, 2);
  const bool is_tied = GENERATE(false, true);
  const at::ScalarType dtype = GENERATE(at::kFloat, at::kBFloat16);
  CAPTURE(fsdp, tp, is_tied, dtype);
  const TempDir dir;
  // Sizes of several panels; the last one is not full.
  WriteRandomFolder(dir.path(), {.hidden_size = 72,
                                 .intermediate_size = 168,
                                 .head_dim = 24,
                                 .vocab_size = 1001,
                                 .is_tied = is_tied,
                                 .dtype = dtype});
  const Rank alone = std::move(ReadAllRanks(dir.path(), tp).back());
  const auto num_wrong = AsRanks(TestBackend::kLocal, fsdp, [&](Collectives& collectives) {
    auto tensors = HfTensors::Open(dir.path(), /*progress=*/nullptr).value();
    const DecoderWeights weights =
        ReadDecoderWeights(alone.part, tensors, at::kCPU, RankGroup(collectives)).value();
    FsdpUnits& units = *weights.shared->units;
    int count = 0;
    const auto compare = [&](int64_t unit, const BaseWeight& mine, const at::Tensor& expected) {
      units.Unshard(unit);
      count += at::equal(mine.ToTensor(), expected) ? 0 : 1;
    };
    const std::vector<LinearStack>& stacks = alone.part.whole.linears->stacks;
    for (size_t i = 0; i < stacks.size(); ++i) {
      compare(stacks[i].unit, weights.stacks[i], alone.weights.stacks[i].ToTensor());
    }
    const auto compare_pieces = [&](int64_t unit, const std::vector<BaseWeight>& mine,
                                    const BaseWeight& whole) {
      int64_t row = 0;
      for (const BaseWeight& piece : mine) {
        compare(unit++, piece, whole.ToTensor().narrow(0, row, piece.n()));
        row += piece.n();
      }
      count += mine.size() > 1 && row == whole.n() ? 0 : 1;
    };
    compare_pieces(weights.shared->first_of_embedding, weights.embedding,
                   alone.weights.embedding[0]);
    compare_pieces(weights.shared->first_of_lm_head, weights.lm_head, alone.weights.lm_head[0]);
    return count;
  });
  CHECK(num_wrong == std::vector<int>(fsdp));
}

namespace {

// Sanitizers do not return freed memory, so the test skips the check of the peak.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kMemoryIsOurs = false;
#else
constexpr bool kMemoryIsOurs = true;
#endif

// Peak and current resident memory from /proc. ResetPeak resets the peak.
void ResetPeak() { std::ofstream("/proc/self/clear_refs") << "5"; }
int64_t StatusBytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int64_t kib = 0;
    if (word == name + ":" && status >> kib) return kib << 10;
  }
  FAIL("no " << name);
  return 0;
}

}  // namespace

// A rank also reads up to a panel of other ranks' shares at each end of its own share.
TEST_CASE("ReadDecoderWeights: ranks that keep shares read and hold no more than these",
          "[models][ranks]") {
  constexpr int kFsdp = 4;
  constexpr int64_t kMebi = int64_t{1} << 20;
  const int64_t tp = GENERATE(1, 2);
  const TempDir dir;
  WriteRandomFolder(dir.path(), {.num_layers = 6,
                                 .hidden_size = 512,
                                 .intermediate_size = 1024,
                                 .head_dim = 64,
                                 .vocab_size = 40'000,
                                 .is_tied = false,
                                 .dtype = at::kBFloat16});
  const auto spec = ReadModelConfig(dir.path());
  const auto part = ShardModel(*spec, {.index = tp - 1, .size = tp});
  FlightRecorder recorder;
  const auto ranks = MakeLocalCollectives("fsdp", kFsdp, {.timeout = kTestPatience}, recorder);
  const int64_t largest_unit = 2 * part->local.layers[0].intermediate_size * spec->hidden_size * 2;
  for (const auto& collectives : ranks) {
    CAPTURE(tp, collectives->rank());
    auto tensors = HfTensors::Open(dir.path(), /*progress=*/nullptr);
    const int64_t before = StatusBytes("VmRSS");
    ResetPeak();
    const auto weights = ReadDecoderWeights(*part, *tensors, at::kCPU, RankGroup(*collectives));
    REQUIRE(weights.ok());
    const int64_t peak = StatusBytes("VmHWM") - before;
    const FsdpUnits& units = *weights->shared->units;
    // 6 layers of about 4 MB and 2 x 40,000 rows of 1 KiB, in 4 shares.
    const int64_t share = units.NumBytes() - 2 * largest_unit;
    CHECK(share > 20 * kMebi / tp);
    CHECK(tensors->read_bytes() > share - kMebi);
    CHECK(tensors->read_bytes() < share + kMebi * 5 / 2);
    // Loading uses the class's buffers, one more unit, and slack for the allocator.
    if (kMemoryIsOurs) CHECK(peak < units.NumBytes() + largest_unit + 4 * kMebi);
    CHECK(tensors->Remaining().empty());
  }
}

TEST_CASE("ReadDecoderWeights: any number of threads reads the tensors and their hash",
          "[models]") {
  const bool is_tied = GENERATE(true, false);
  const at::ScalarType dtype = GENERATE(at::kBFloat16, at::kHalf);
  CAPTURE(is_tied, dtype);
  const TempDir dir;
  // The embedding is several pieces, the last of them no whole panel.
  WriteRandomFolder(dir.path(), {.num_layers = 3,
                                 .hidden_size = 512,
                                 .intermediate_size = 1024,
                                 .head_dim = 64,
                                 .vocab_size = 1500,
                                 .is_tied = is_tied,
                                 .dtype = dtype});
  const auto spec = ReadModelConfig(dir.path());
  auto whole = HfTensors::Open(dir.path(), /*progress=*/nullptr);
  REQUIRE(VisitTensors(*spec, *whole).ok());
  const int num_threads = at::get_num_threads();
  for (const int threads : {1, 2, 5}) {
    at::set_num_threads(threads);
    const Rank rank = std::move(ReadAllRanks(dir.path(), 1)[0]);
    CHECK(rank.tensors.ContentHash("config") == whole->ContentHash("config"));
    for (const auto& [name, tensor] : Named(rank, is_tied, dtype)) {
      auto again = HfTensors::Open(dir.path(), /*progress=*/nullptr);
      CAPTURE(threads, name);
      CHECK(at::equal(again->Read(name, tensor.sizes()).value(), tensor));
    }
  }
  at::set_num_threads(num_threads);
}

TEST_CASE("ReadDecoderWeights: progress ends at one, however little a rank reads", "[models]") {
  const TempDir dir;
  WriteModelFolder(dir.path(), RandomTensors(48, /*is_tied=*/false, at::kFloat),
                   Config(48, /*is_tied=*/false));
  const auto spec = ReadModelConfig(dir.path());
  const auto part = ShardModel(*spec, {.index = 1, .size = 4});
  std::vector<double> seen;
  auto tensors = HfTensors::Open(dir.path(), [&](double f) { seen.push_back(f); });
  REQUIRE(ReadDecoderWeights(*part, *tensors, at::kCPU).ok());
  REQUIRE_FALSE(seen.empty());
  CHECK(std::is_sorted(seen.begin(), seen.end()));
  CHECK(seen.back() == 1.0);
}

TEST_CASE("ReadDecoderWeights: a tensor of another shape is refused on every rank", "[models]") {
  Tensors tensors = RandomTensors(48, /*is_tied=*/true, at::kFloat);
  const std::string name = "model.layers.1.mlp.down_proj.weight";
  tensors[name] = at::randn({kHidden, kMlp + 4});
  const TempDir dir;
  WriteModelFolder(dir.path(), tensors, Config(48, /*is_tied=*/true));
  const auto spec = ReadModelConfig(dir.path());
  for (int64_t index = 0; index < 2; ++index) {
    auto folder = HfTensors::Open(dir.path(), /*progress=*/nullptr);
    const auto part = ShardModel(*spec, {.index = index, .size = 2});
    const auto weights = ReadDecoderWeights(*part, *folder, at::kCPU);
    REQUIRE(weights.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK(weights.status().message() ==
          "tensor " + name + " has shape [12, 28], the config says [12, 24]");
  }
}

TEST_CASE("HfTensors: ranks that share the digests out get the hash of one rank", "[models]") {
  const int64_t tp = GENERATE(2, 4);
  const TempDir dir;
  WriteModelFolder(dir.path(), RandomTensors(37, /*is_tied=*/false, at::kBFloat16),
                   Config(37, /*is_tied=*/false));
  const std::string expected = ReadAllRanks(dir.path(), 1)[0].tensors.ContentHash("config");

  std::vector<Rank> ranks = ReadAllRanks(dir.path(), tp);
  std::vector<HfTensors::Digests> shares;
  HfTensors::Digests all;
  size_t num_dealt = 0;
  for (int64_t index = 0; index < tp; ++index) {
    const auto share = ranks[index].tensors.DigestShare(index, tp);
    REQUIRE(share.ok());
    CHECK_FALSE(share->empty());
    num_dealt += share->size();
    all.insert(share->begin(), share->end());
    shares.push_back(*share);
  }
  CHECK(all.size() == num_dealt);  // each tensor once
  for (Rank& rank : ranks) {
    for (const HfTensors::Digests& share : shares) REQUIRE(rank.tensors.AddDigests(share).ok());
    CHECK(rank.tensors.ContentHash("config") == expected);
  }
  const absl::Status other = ranks[0].tensors.AddDigests({{"model.norm.weight", "0"}});
  CHECK(other.code() == absl::StatusCode::kFailedPrecondition);
}

// A device without memory stands for a GPU.
TEST_CASE("ReadDecoderWeights: fp16 matrices are bf16 on a GPU and fp32 on a CPU", "[models]") {
  const TempDir dir;
  WriteRandomFolder(dir.path(), {.dtype = at::kHalf});
  const auto spec = ReadModelConfig(dir.path());
  const auto part = ShardModel(*spec, {});
  for (const auto& [device, dtype] :
       {std::pair(at::kCPU, at::kFloat), std::pair(at::kMeta, at::kBFloat16)}) {
    auto tensors = HfTensors::Open(dir.path(), /*progress=*/nullptr);
    const auto weights = ReadDecoderWeights(*part, *tensors, device);
    REQUIRE(weights.ok());
    CHECK(weights->embedding[0].dtype() == dtype);
    for (const BaseWeight& stack : weights->stacks) CHECK(stack.dtype() == dtype);
    for (const at::Tensor& vector : weights->vectors) CHECK(vector.scalar_type() == at::kFloat);
  }
}

}  // namespace lathe::worker
