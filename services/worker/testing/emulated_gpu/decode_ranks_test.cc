// Decode passes with adapters on ranks of axis tp, on emulated GPUs.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include <catch2/catch.hpp>

#include "services/worker/models/load_model.h"
#include "services/worker/sampling/attention/decode_pass.h"
#include "services/worker/testing/emulated_gpu/emulated_gpu.h"
#include "services/worker/testing/emulated_gpu/queued_ranks.h"
#include "services/worker/testing/test_gpu.h"
#include "services/worker/testing/test_parts.h"
#include "services/worker/testing/test_random_folder.h"
#include "services/worker/testing/test_temp_dir.h"

namespace lathe::worker {
namespace {

constexpr double kBf16Tolerance = 0.02;
constexpr int64_t kNumRows = 4;

// Returns a rank's part of an adapter whose numbers depend on rank and seed only.
std::shared_ptr<const AdapterWeights> AdapterOfRank(const Model& model, const LoraSpec& lora) {
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(lora.seed);
  const int64_t num_parameters = NumAdapterParameters(WholeModel(model.spec()), lora);
  const at::Tensor flat = at::randn({num_parameters}, generator, at::kFloat).mul_(0.05);
  return std::make_shared<Adapter>(model.part(), lora,
                                   CutFlat(flat, model.part(), lora).to(model.device()))
      ->Publish();
}

// Returns the rank's logits [kNumRows, V / tp] of sequences of one token.
at::Tensor DecodeOnRank(const std::filesystem::path& folder, const RankGroups& ranks) {
  const LoadedModel loaded =
      LoadModel(folder, EmulatedGpu(), nullptr, ComputeDtype::kAuto, ranks.tp, ranks.fsdp).value();
  const Model& model = *loaded.model;
  TORCH_CHECK(model.attention_arithmetic() == MatmulArithmetic::kBf16);
  const std::vector<std::shared_ptr<const AdapterWeights>> adapters = {
      AdapterOfRank(model, {.rank = 3, .seed = 1}), nullptr,
      AdapterOfRank(model, {.rank = 8, .seed = 2})};
  const DecoderSpec& local = model.part().local;
  KvCache cache(local, 600 * KvCache::BytesPerToken(local, MatmulArithmetic::kBf16),
                MatmulArithmetic::kBf16);
  std::vector<KvSequence> sequences(kNumRows);
  std::vector<DecodeRow> rows;
  for (int64_t i = 0; i < kNumRows; ++i) {
    TORCH_CHECK(cache.Extend(sequences[i], 1));
    rows.push_back({.kv = &sequences[i],
                    .token = static_cast<int32_t>(5 + 7 * i),
                    .adapter = adapters[i % 3].get()});
  }
  DecodeBuffers buffers(model, cache, kNumRows);
  buffers.FillAdapters(rows);
  DecodeBuffers::Pass pass = buffers.PassOf(kNumRows, /*has_lora=*/true);
  buffers.SetInputs(rows, pass);
  buffers.Forward(pass);
  return buffers.logits().to(at::kCPU);
}

}  // namespace

TEST_CASE("A decode pass with adapters on ranks of tp gives what one rank gives",
          "[sampling][ranks][emulated_gpu]") {
  const TempDir folder;
  WriteRandomFolder(folder.path(),
                    {.head_dim = 64, .vocab_size = 64, .has_bias = true, .dtype = at::kBFloat16});
  const at::Tensor expected = DecodeOnRank(folder.path(), {});
  IssueOrder order;
  const std::vector<at::Tensor> parts =
      AsQueuedMesh({.tp = 2}, order,
                   [&](const RankGroups& ranks) { return DecodeOnRank(folder.path(), ranks); });
  CHECK(Distance(at::cat(at::TensorList(parts), 1), expected) < kBf16Tolerance);
}

}  // namespace lathe::worker
