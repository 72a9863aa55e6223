// Decode passes as CUDA graphs record them, and the work that passes queue, on the emulated GPU.
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <catch2/catch.hpp>

#include "libs/common/losses/registry.h"
#include "services/worker/models/layer_steps.h"
#include "services/worker/sampling/attention/cached_attention.h"
#include "services/worker/sampling/attention/decode_pass.h"
#include "services/worker/sampling/sampling_engine.h"
#include "services/worker/testing/emulated_gpu/emulated_gpu.h"
#include "services/worker/testing/test_family_model.h"
#include "services/worker/training/adamw.h"
#include "services/worker/training/trainer.h"

namespace lathe::worker {
namespace {

constexpr double kBf16Tolerance = 0.02;

// Sequences in a cache of pages.
class DecodeCase {
 public:
  DecodeCase(const Model& model, int64_t num_sequences)
      : model_(model),
        cache(model.spec(), 600 * KvCache::BytesPerToken(model.spec(), MatmulArithmetic::kBf16),
              MatmulArithmetic::kBf16),
        small_(RandomAdapterOn(model.device(), model.spec(), 3, 1)->Publish()),
        large_(RandomAdapterOn(model.device(), model.spec(), 8, 2)->Publish()),
        sequences_(num_sequences) {
    for (int64_t i = 0; i < num_sequences; ++i) Eager({i}, 11 + 9 * i);
  }

  // Adds a token to the sequences, and returns the decode pass of these rows.
  std::vector<DecodeRow> Grow(const std::vector<int64_t>& which) {
    std::vector<DecodeRow> rows;
    for (const int64_t i : which) {
      REQUIRE(cache.Extend(sequences_[i], 1));
      rows.push_back({.kv = &sequences_[i], .token = TokenAt(i), .adapter = AdapterOf(i)});
    }
    return rows;
  }

  // Returns the logits of the sequences' last tokens, each [V], without buffers.
  at::Tensor EagerAgain(const std::vector<int64_t>& which) { return Eager(which, 0); }

 private:
  int32_t TokenAt(int64_t i) const {
    return static_cast<int32_t>((7 * i + 3 * sequences_[i].length) % 95);
  }
  const AdapterWeights* AdapterOf(int64_t i) const {
    return i % 3 == 0 ? small_.get() : i % 3 == 1 ? nullptr : large_.get();
  }

  // Computes the last tokens: one of each sequence, or `num_new` more of them.
  at::Tensor Eager(const std::vector<int64_t>& which, int64_t num_new) {
    const int64_t num_rows = num_new == 0 ? 1 : num_new;
    std::vector<int64_t> tokens, positions;
    std::vector<CachedRows> cached;
    PackedRows rows;
    for (const int64_t i : which) {
      if (num_new > 0) REQUIRE(cache.Extend(sequences_[i], num_new));
      const auto begin = static_cast<int64_t>(tokens.size());
      for (int64_t j = 0; j < num_rows; ++j) {
        positions.push_back(sequences_[i].length - num_rows + j);
        tokens.push_back(num_new == 0 ? TokenAt(i) : (i + 5 * j) % 95);
      }
      rows.segments.push_back({.begin = begin, .end = begin + num_rows, .adapter = AdapterOf(i)});
      cached.push_back({.kv = &sequences_[i], .num_rows = num_rows});
    }
    rows.tokens = at::tensor(tokens, at::kLong).to(model_.device());
    rows.positions = at::tensor(positions, at::kLong).to(model_.device());
    CachedAttention attention(cache, cached, model_.device());
    return model_.Logits(model_.FinalNorm(RunLayers(model_, rows, attention)), rows.segments);
  }

  const Model& model_;

 public:
  KvCache cache;

 private:
  const std::shared_ptr<const AdapterWeights> small_;
  const std::shared_ptr<const AdapterWeights> large_;
  std::vector<KvSequence> sequences_;
};

// Returns what `more` has beside `less`.
DeviceLedger Difference(const DeviceLedger& more, const DeviceLedger& less) {
  DeviceLedger difference = more;
  const auto subtract = [](std::map<std::string, int64_t>& from,
                           const std::map<std::string, int64_t>& what) {
    for (const auto& [name, count] : what) from[name] -= count;
    std::erase_if(from, [](const auto& entry) { return entry.second == 0; });
  };
  subtract(difference.launches, less.launches);
  subtract(difference.uploads, less.uploads);
  subtract(difference.readbacks, less.readbacks);
  return difference;
}

// Returns what one layer more adds to `run`, which gets a model and returns a ledger.
template <typename F>
DeviceLedger OfLayer(const F& run, const std::string& family = "qwen3") {
  const auto with_layers = [&](int64_t num_layers) {
    return run(RandomModelOn(EmulatedGpu(), TestFamilySpec(family, 64, num_layers), at::kBFloat16));
  };
  return Difference(with_layers(3), with_layers(2));
}

// Waits for the device before each layer, as a stray .item() would.
class WaitsInLayers : public ModelAround {
 public:
  using ModelAround::ModelAround;

 private:
  void BeforeLayer(const at::Tensor& x) const override { (void)x.sum().item(); }
};

DeviceLedger LedgerOfDecode(const Model& model, bool has_lora) {
  DecodeCase sequences(model, 4);
  const std::vector<DecodeRow> rows = sequences.Grow({0, 1, 2, 3});
  DecodeBuffers buffers(model, sequences.cache, 8);
  buffers.FillAdapters(rows);
  DecodeBuffers::Pass pass = buffers.PassOf(4, has_lora);
  buffers.SetInputs(rows, pass);
  buffers.Forward(pass);  // makes plans
  TakeLedger();
  buffers.Forward(pass);
  return TakeLedger();
}

// Casts matrices before each layer, a quarter of the bytes that the layer reads.
class CastsInLayers : public ModelAround {
 public:
  explicit CastsInLayers(const Model& model)
      : ModelAround(model),
        matrix_(at::zeros({1 << 18}, at::TensorOptions(at::kFloat).device(model.device()))) {}

 private:
  void BeforeLayer(const at::Tensor&) const override { (void)matrix_.to(at::kBFloat16); }

  const at::Tensor matrix_;
};

// A model whose matrices have far more bytes than a few rows.
Decoder WideModel() {
  return RandomModelOn(EmulatedGpu(),
                       TestFamilySpec("qwen3", 64, 2,
                                      {{"hidden_size", 512},
                                       {"intermediate_size", 1024},
                                       {"num_attention_heads", 8},
                                       {"vocab_size", 4096}}),
                       at::kBFloat16);
}

// Bytes that a decode pass cannot do without: each matrix, each adapter and each row's cache once.
int64_t BytesOfDecode(const Model& model, const std::vector<DecodeRow>& rows) {
  int64_t num_bytes = model.WeightBytes();
  std::set<const AdapterWeights*> adapters;
  for (const DecodeRow& row : rows) {
    num_bytes += row.kv->length * KvCache::BytesPerToken(model.spec(), MatmulArithmetic::kBf16);
    if (row.adapter == nullptr || !adapters.insert(row.adapter).second) continue;
    for (const LoraPair& linear : row.adapter->tensors.linears) {
      if (linear.defined()) num_bytes += TensorBytes(linear.a) + TensorBytes(linear.b_t);
    }
  }
  return num_bytes;
}

// Bytes of a pass, relative to BytesOfDecode.
double RelativeBytesOfDecode(const Model& model) {
  DecodeCase sequences(model, 4);
  const std::vector<DecodeRow> rows = sequences.Grow({0, 1, 2, 3});
  DecodeBuffers buffers(model, sequences.cache, 8);
  buffers.FillAdapters(rows);
  DecodeBuffers::Pass pass = buffers.PassOf(4, /*has_lora=*/true);
  buffers.SetInputs(rows, pass);
  buffers.Forward(pass);  // makes plans
  TakeLedger();
  buffers.Forward(pass);
  const DeviceLedger ledger = TakeLedger();
  UNSCOPED_INFO(Describe(ledger));
  return static_cast<double>(ledger.num_bytes()) / static_cast<double>(BytesOfDecode(model, rows));
}

DeviceLedger LedgerOfSampling(const Model& model) {
  SamplingEngine engine(model, {.kv_cache_bytes = 1 << 20}, nullptr);
  const auto adapter = RandomAdapterOn(model.device(), model.spec(), 5, 3)->Publish();
  for (const char* id : {"a", "b"}) {
    REQUIRE(engine
                .Add({.request_id = id,
                      .prompt = {1, 2, 3},
                      .params = {.max_tokens = 5, .ignore_eos = true}},
                     adapter)
                .ok());
  }
  for (int i = 0; i < 3; ++i) engine.RunPass();
  TakeLedger();
  engine.RunPass();
  return TakeLedger();
}

DeviceLedger LedgerOfTraining(const Model& model) {
  AdapterPool adapters;
  adapters.Put("m", RandomAdapterOn(model.device(), model.spec(), 4, 1));
  Trainer trainer(model, adapters, {});
  TrainDatum datum;
  for (int32_t i = 0; i < 20; ++i) {
    datum.tokens.push_back(3 * i);
    datum.targets.push_back(3 * i + 3);
    datum.weights.push_back(1);
  }
  TakeLedger();
  trainer.Begin({{TrainRequest{.request_id = "r",
                               .model_id = "m",
                               .seq_id = 1,
                               .loss = DefaultLoss("cross_entropy"),
                               .data = {datum}}}});
  while (trainer.RunUnit()) {
  }
  return TakeLedger();
}

}  // namespace

TEST_CASE("A decode pass over fixed buffers is a pass without them", "[sampling][emulated_gpu]") {
  const std::string family = GENERATE(from_range(TestFamilies()));
  CAPTURE(family);
  const DecoderSpec spec = TestFamilySpec(family, 64);
  const Decoder model = RandomModelOn(EmulatedGpu(), spec, at::kBFloat16);
  DecodeCase sequences(model, 4);
  DecodeBuffers buffers(model, sequences.cache, 8);
  DecodeBuffers::Pass whole = buffers.PassOf(4, /*has_lora=*/true);
  DecodeBuffers::Pass small = buffers.PassOf(2, /*has_lora=*/true);
  const void* const logits = buffers.logits().data_ptr();
  // Padded, whole, of another size, and the first again with other lengths and adapters.
  const std::vector<std::vector<int64_t>> passes = {{0, 1, 2}, {3, 2, 1, 0}, {3, 1}, {1, 0, 3}};
  for (const std::vector<int64_t>& which : passes) {
    DecodeBuffers::Pass& pass = which.size() > 2 ? whole : small;
    const std::vector<DecodeRow> rows = sequences.Grow(which);
    buffers.FillAdapters(rows);
    buffers.SetInputs(rows, pass);
    buffers.Forward(pass);
    const at::Tensor own = buffers.logits().narrow(0, 0, static_cast<int64_t>(which.size()));
    CHECK(Distance(own, sequences.EagerAgain(which)) < kBf16Tolerance);
  }
  CHECK(buffers.logits().data_ptr() == logits);
}

TEST_CASE("A row without an adapter has the same bits in passes with adapters and without",
          "[sampling][emulated_gpu]") {
  const std::string family = GENERATE(from_range(TestFamilies()));
  CAPTURE(family);
  const Decoder model = RandomModelOn(EmulatedGpu(), TestFamilySpec(family, 64), at::kBFloat16);
  DecodeCase sequences(model, 4);
  DecodeBuffers buffers(model, sequences.cache, 8);
  const std::vector<DecodeRow> rows = sequences.Grow({0, 1, 2, 3});
  REQUIRE(rows[1].adapter == nullptr);
  buffers.FillAdapters(rows);
  const auto logits_of = [&](bool has_lora) {
    DecodeBuffers::Pass pass = buffers.PassOf(4, has_lora);
    buffers.SetInputs(rows, pass);
    buffers.Forward(pass);
    return buffers.logits().to(at::kCPU, at::kFloat, /*non_blocking=*/false, /*copy=*/true);
  };
  const at::Tensor with_adapters = logits_of(true);
  const at::Tensor without = logits_of(false);
  CHECK(at::equal(with_adapters[1], without[1]));
  CHECK_FALSE(at::equal(with_adapters[2], without[2]));
}

TEST_CASE("A recorded decode pass has at most 16 launches a layer, and waits for nothing",
          "[sampling][emulated_gpu]") {
  // Launches of a layer without and with adapters. The test's Qwen2 and Llama have biases, which
  // cost nothing beside adapters. Gemma 3 has two norms more.
  using Bound = std::tuple<std::string, int64_t, int64_t>;
  const auto [family, most, most_with_lora] =
      GENERATE(Bound{"qwen3", 11, 16}, Bound{"qwen2", 12, 16}, Bound{"llama", 15, 16},
               Bound{"mistral", 11, 16}, Bound{"gemma3_text", 11, 18});
  const bool has_lora = GENERATE(false, true);
  const DeviceLedger layer =
      OfLayer([&](const Model& model) { return LedgerOfDecode(model, has_lora); }, family);
  CAPTURE(family, has_lora, Describe(layer));
  CHECK(layer.num_launches() <= (has_lora ? most_with_lora : most));
  const Decoder model = RandomModelOn(EmulatedGpu(), TestFamilySpec(family, 64), at::kBFloat16);
  const DeviceLedger pass = LedgerOfDecode(model, has_lora);
  CAPTURE(Describe(pass));
  // Embedding with its scale, final norm, head.
  CHECK(pass.num_launches() - 2 * layer.num_launches() <= 9);
  CHECK(pass.num_uploads() == 0);
  CHECK(pass.num_readbacks() == 0);
}

TEST_CASE("A decode pass moves at most a tenth more bytes than it must",
          "[sampling][emulated_gpu]") {
  const Decoder model = WideModel();
  const double own = RelativeBytesOfDecode(model);
  CHECK(own > 1);
  CHECK(own <= 1.1);
  // Seen when more is moved.
  CHECK(RelativeBytesOfDecode(CastsInLayers(model)) > 1.2);
}

TEST_CASE("A decode pass that is not recorded reads back its tokens only",
          "[sampling][emulated_gpu]") {
  const DeviceLedger layer = OfLayer(LedgerOfSampling);
  CAPTURE(Describe(layer));
  CHECK(layer.num_launches() <= 35);
  CHECK(layer.num_uploads() == 0);
  CHECK(layer.num_readbacks() == 0);
  const Decoder model = RandomModelOn(EmulatedGpu(), TestFamilySpec("qwen3", 64), at::kBFloat16);
  const DeviceLedger pass = LedgerOfSampling(model);
  CAPTURE(Describe(pass));
  CHECK(pass.num_uploads() <= 6);
  CHECK(pass.readbacks == std::map<std::string, int64_t>{{"copy to the host", 1}});
}

TEST_CASE("A training pass reads back its logprobs only", "[training][emulated_gpu]") {
  const DeviceLedger layer = OfLayer(LedgerOfTraining);
  CAPTURE(Describe(layer));
  CHECK(layer.num_launches() <= 114);
  CHECK(layer.num_uploads() <= 2);  // starts of sequences for flash attention, in both directions
  CHECK(layer.num_readbacks() == 0);
  const Decoder model = RandomModelOn(EmulatedGpu(), TestFamilySpec("qwen3", 64), at::kBFloat16);
  const DeviceLedger pass = LedgerOfTraining(model);
  CAPTURE(Describe(pass));
  CHECK(pass.readbacks == std::map<std::string, int64_t>{{"copy to the host", 1}});
}

TEST_CASE("A step of AdamW reads back two norms", "[training][emulated_gpu]") {
  const auto adapter =
      RandomAdapterOn(EmulatedGpu(), TestFamilySpec("qwen3", 64), /*rank=*/4, /*seed=*/1);
  adapter->gradient.fill_(0.01);
  TakeLedger();
  REQUIRE(ApplyAdamW(*adapter, {.learning_rate = 1e-3}).ok());
  const DeviceLedger ledger = TakeLedger();
  CAPTURE(Describe(ledger));
  CHECK(ledger.num_launches() <= 10);
  CHECK(ledger.readbacks == std::map<std::string, int64_t>{{"item", 2}});
}

TEST_CASE("A wait for the device within a layer is found", "[emulated_gpu]") {
  const DeviceLedger decode = OfLayer(
      [](const Model& model) { return LedgerOfDecode(WaitsInLayers(model), /*has_lora=*/true); });
  CHECK(decode.readbacks == std::map<std::string, int64_t>{{"item", 1}});
  const DeviceLedger training =
      OfLayer([](const Model& model) { return LedgerOfTraining(WaitsInLayers(model)); });
  CHECK(training.readbacks == std::map<std::string, int64_t>{{"item", 1}});
}

}  // namespace lathe::worker
