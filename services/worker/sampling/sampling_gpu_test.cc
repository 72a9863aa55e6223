// Compares sampling on a GPU with the same computation by torch operations. Without a GPU the cases
// that need one are skipped with a warning.
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "services/worker/kernels/cuda/paged_attention.h"
#include "services/worker/layers/mlp.h"
#include "services/worker/lora/lora_slots.h"
#include "services/worker/sampling/attention/cached_attention.h"
#include "services/worker/sampling/sampling_engine.h"
#include "services/worker/testing/test_gpu.h"

namespace lathe::worker {
namespace {

constexpr double kBf16Tolerance = 0.03;  // for numbers near 1
constexpr double kFp32Tolerance = 1e-4;  // other summation order
constexpr double kLogprobTolerance = 0.05;

Decoder GpuModel(const DecoderSpec& spec) { return Bf16ModelOn(TestGpu(), spec); }

std::shared_ptr<const AdapterWeights> GpuAdapter(const DecoderSpec& spec, int64_t rank,
                                                 uint64_t seed) {
  return RandomAdapterOn(TestGpu(), spec, rank, seed)->Publish();
}

// One sequence of a pass. The sequence grows by `num_rows`.
struct Growth {
  size_t sequence;
  int64_t num_rows;
};

// Attention outputs of both caches for the same pass and the same random projections.
struct Both {
  at::Tensor by_torch;
  at::Tensor by_pages;
};

class TwoCaches {
 public:
  TwoCaches(const DecoderSpec& spec, int64_t window)
      : shape_(spec.layers[0].attention),
        plain_(spec, 2000 * KvCache::BytesPerToken(spec, MatmulArithmetic::kFp32),
               MatmulArithmetic::kFp32),
        paged_(spec, 2000 * KvCache::BytesPerToken(spec, MatmulArithmetic::kBf16),
               MatmulArithmetic::kBf16),
        rope_({.theta = 1e4}, shape_.head_dim, spec.max_position_embeddings, TestGpu()),
        norm_(at::rand({shape_.head_dim}).add_(0.5).to(TestGpu())) {
    shape_.window = window;
  }

  Both Run(const std::vector<Growth>& pass) {
    int64_t num_rows = 0;
    std::vector<int64_t> positions;
    std::vector<CachedRows> plain;
    std::vector<CachedRows> paged;
    for (const Growth& growth : pass) {
      const int64_t first = plain_sequences_[growth.sequence].length;
      for (int64_t i = 0; i < growth.num_rows; ++i) positions.push_back(first + i);
      REQUIRE(plain_.Extend(plain_sequences_[growth.sequence], growth.num_rows));
      REQUIRE(paged_.Extend(paged_sequences_[growth.sequence], growth.num_rows));
      plain.push_back({&plain_sequences_[growth.sequence], growth.num_rows});
      paged.push_back({&paged_sequences_[growth.sequence], growth.num_rows});
      num_rows += growth.num_rows;
    }
    const int64_t heads = shape_.num_heads + 2 * shape_.num_kv_heads;
    const at::Tensor qkv = at::randn({num_rows, heads, shape_.head_dim}).to(TestGpu());
    const QkHeads qk = {qkv.narrow(1, 0, shape_.num_heads),
                        qkv.narrow(1, shape_.num_heads, shape_.num_kv_heads)};
    const at::Tensor v = qkv.narrow(1, shape_.num_heads + shape_.num_kv_heads, shape_.num_kv_heads);
    const QkPreparation preparation = {.q_norm = norm_,
                                       .k_norm = norm_,
                                       .eps = 1e-6,
                                       .rope = &rope_,
                                       .positions = at::tensor(positions, at::kLong).to(TestGpu())};
    const auto attend = [&](KvCache& cache, const std::vector<CachedRows>& rows) {
      CachedAttention attention(cache, rows, TestGpu());
      return attention.Attend(1, shape_, {qk, v}, preparation).to(at::kCPU);
    };
    return {attend(plain_, plain), attend(paged_, paged)};
  }

 private:
  AttentionSpec shape_;
  KvCache plain_;
  KvCache paged_;
  std::map<size_t, KvSequence> plain_sequences_;
  std::map<size_t, KvSequence> paged_sequences_;
  const RopeTable rope_;
  const at::Tensor norm_;
  AttentionSpec attention_;
};

TEST_CASE("Paged attention on a GPU is attention by torch, up to bf16", "[sampling][gpu]") {
  if (!HasGpu()) return;
  const int64_t head_dim = GENERATE(64, 128, 256);
  const int64_t window = GENERATE(0, 20);
  const int64_t num_heads = GENERATE(2, 4, 16);  // over two kv heads
  at::manual_seed(5);
  TwoCaches caches(SpecWithHeads(head_dim, num_heads), window);
  const std::vector<std::vector<Growth>> passes = {{{0, 40}, {1, 17}},
                                                   {{0, 1}, {1, 1}},
                                                   {{0, 1}, {1, 9}, {2, 130}, {3, 1}},
                                                   {{2, 1}, {3, 1}, {0, 1}},
                                                   {{2, 256}, {1, 1}}};
  for (const std::vector<Growth>& pass : passes) {
    const Both both = caches.Run(pass);
    CHECK(at::allclose(both.by_pages, both.by_torch, kBf16Tolerance, kBf16Tolerance));
  }
}

TEST_CASE("LoRA through slots on a GPU is LoRA over segments", "[lora][gpu]") {
  if (!HasGpu()) return;
  const DecoderSpec spec = SmallSpec();
  const int64_t intermediate_size = spec.layers[1].intermediate_size;
  const int64_t gate = spec.linears->stacks[spec.layers[1].gate_up].first;
  const auto small = GpuAdapter(spec, 3, 1);
  const auto large = GpuAdapter(spec, 32, 2);
  // With 23 rows some neighbours have one adapter and share its factors, others do not.
  const int64_t num_rows = GENERATE(5, 23);
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16);
  std::vector<const AdapterWeights*> adapters = {small.get(), small.get(), nullptr, large.get(),
                                                 small.get()};
  for (int64_t row = 5; row < num_rows; ++row) {
    adapters.push_back(row < 14 ? large.get() : row < 19 ? nullptr : small.get());
  }
  std::vector<Segment> segments;
  for (int64_t row = 0; row < num_rows; ++row) {
    segments.push_back({.begin = row, .end = row + 1, .adapter = adapters[row]});
  }
  LoraSlots slots(spec, /*most_rows=*/32, TestGpu());
  REQUIRE(slots.Fill(adapters) == 128);
  const at::Tensor x = at::randn({num_rows, spec.hidden_size}).to(TestGpu(), dtype);
  const at::Tensor wide = at::randn({num_rows, 2 * intermediate_size}).to(TestGpu(), dtype);
  const at::Tensor start = wide.clone();
  const at::Tensor expected = wide.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
  const auto parts = [&](const at::Tensor& y) -> std::vector<LoraPart> {
    return {{gate, y.narrow(1, 0, intermediate_size)},
            {gate + 1, y.narrow(1, intermediate_size, intermediate_size)}};
  };
  AddLoraByTorch(x.to(at::kFloat), segments, parts(expected));
  AddLora(x, {{.begin = 0, .end = num_rows, .slots = &slots}}, parts(wide));
  const double tolerance = dtype == at::kFloat ? kFp32Tolerance : kBf16Tolerance;
  CHECK(at::allclose(wide.to(at::kFloat), expected, tolerance, tolerance));

  // Steps that the launches of LoRA take along have the bits of launches of their own.
  const LoraAddends addends = {.residual = at::randn(wide.sizes()).to(TestGpu()),
                               .bias = at::randn({wide.size(1)}).to(TestGpu())};
  const at::Tensor apart = start.clone().add_(addends.residual).add_(addends.bias);
  slots.Add(x, parts(apart));
  const at::Tensor together = start.clone();
  slots.Add(x, parts(together), addends);
  CHECK(at::equal(together, apart));
  const auto activation = GENERATE(Activation::kSilu, Activation::kGeluTanh);
  const at::Tensor activated = slots.AddGated(activation, x, parts(start), addends);
  CHECK(at::equal(activated, GatedActivation(activation, parts(apart)[0].y, parts(apart)[1].y)));
}

TEST_CASE("LoRA through slots on a GPU takes an adapter per row and the largest rank",
          "[lora][gpu]") {
  if (!HasGpu()) return;
  const DecoderSpec spec = SmallSpec();
  const int64_t intermediate_size = spec.layers[1].intermediate_size;
  const int64_t gate = spec.linears->stacks[spec.layers[1].gate_up].first;
  constexpr int64_t kNumRows = 70;
  LoraSlots slots(spec, kNumRows, TestGpu());
  std::vector<std::shared_ptr<const AdapterWeights>> owners;
  for (int64_t row = 0; row < kNumRows; ++row) owners.push_back(GpuAdapter(spec, 2, row));
  // Later passes have other adapters, and the first ones again.
  for (const int64_t rank : {2, 512, 2}) {
    if (rank > 2) owners[3] = GpuAdapter(spec, rank, 1);
    std::vector<const AdapterWeights*> adapters;
    std::vector<Segment> segments;
    for (int64_t row = 0; row < kNumRows; ++row) {
      const AdapterWeights* const adapter = owners[(row + rank) % kNumRows].get();
      adapters.push_back(rank == 2 && adapter->lora.rank > 2 ? nullptr : adapter);
      segments.push_back({.begin = row, .end = row + 1, .adapter = adapters.back()});
    }
    CHECK(slots.Fill(adapters) == (rank > 128 ? 512 : 128));
    const at::Tensor x = at::randn({kNumRows, spec.hidden_size}).to(TestGpu(), at::kFloat);
    const at::Tensor y = at::randn({kNumRows, intermediate_size}).to(TestGpu(), at::kFloat);
    const at::Tensor expected = y.clone();
    AddLoraByTorch(x, segments, {{gate, expected}});
    AddLora(x, {{.begin = 0, .end = kNumRows, .slots = &slots}}, {{gate, y}});
    CHECK(at::allclose(y, expected, kFp32Tolerance, kFp32Tolerance));
  }
}

// Samples several requests greedily, some with adapters. Returns the samples by request id.
std::map<std::string, SampledSequence> Sample(const Model& model, bool decode_graphs) {
  const DecoderSpec& spec = model.spec();
  SamplingEngine engine(
      model, {.kv_cache_bytes = 4 << 20, .max_running_samples = 8, .decode_graphs = decode_graphs},
      nullptr);
  const std::vector<std::shared_ptr<const AdapterWeights>> adapters = {
      nullptr, GpuAdapter(spec, 4, 1), GpuAdapter(spec, 16, 2), nullptr, nullptr};
  for (size_t i = 0; i < adapters.size(); ++i) {
    SampleRequest request{.request_id = std::to_string(i)};
    for (size_t j = 0; j < 9 + 13 * i; ++j) {
      request.prompt.push_back(static_cast<int32_t>((i + 7 * j) % 90));
    }
    const auto max_tokens = static_cast<int64_t>(6 + 3 * i);  // rows per pass decrease
    request.params = {.max_tokens = max_tokens, .temperature = 0, .ignore_eos = true};
    REQUIRE(engine.Add(std::move(request), adapters[i]).ok());
  }
  std::map<std::string, SampledSequence> sequences;
  while (engine.HasWork()) {
    engine.RunPass();
    for (FinishedSample& finished : engine.TakeFinished()) {
      REQUIRE(finished.output.ok());
      sequences[finished.request_id] = std::move(finished.output->sequences[0]);
    }
  }
  return sequences;
}

TEST_CASE("Replayed decode passes on a GPU give what passes that are not recorded give",
          "[sampling][gpu]") {
  if (!HasGpu()) return;
  const Decoder model = GpuModel(SpecWithHeads(64));
  REQUIRE(model.attention_arithmetic() == MatmulArithmetic::kBf16);
  const auto replayed = Sample(model, /*decode_graphs=*/true);
  const auto eager = Sample(model, /*decode_graphs=*/false);
  REQUIRE(replayed.size() == eager.size());
  for (const auto& [id, sequence] : eager) {
    CAPTURE(id);
    CHECK(replayed.at(id).tokens == sequence.tokens);
    for (size_t i = 0; i < sequence.logprobs.size(); ++i) {
      CHECK(replayed.at(id).logprobs[i] == Approx(sequence.logprobs[i]).margin(kLogprobTolerance));
    }
  }
}

// Throws once, in the second layer of the second forward step over one row. The first step warms up
// and the second is recorded.
class ThrowsWhenRecorded : public ModelAround {
 public:
  using ModelAround::ModelAround;
  int num_thrown() const { return num_thrown_; }

 private:
  void BeforeLayer(const at::Tensor& x) const override {
    if (x.size(0) != 1 || num_thrown_ > 0 || ++num_calls_ < 4) return;
    ++num_thrown_;
    throw std::runtime_error("planted");
  }

  mutable int num_calls_ = 0;
  mutable int num_thrown_ = 0;
};

TEST_CASE("A decode pass on a GPU that cannot be recorded is computed without a graph",
          "[sampling][gpu]") {
  if (!HasGpu() || !at::hasCUDA()) return;  // an emulated GPU records nothing
  const Decoder model = GpuModel(SpecWithHeads(64));
  const ThrowsWhenRecorded broken(model);
  const auto sampled = Sample(broken, /*decode_graphs=*/true);
  const auto eager = Sample(model, /*decode_graphs=*/false);
  CHECK(broken.num_thrown() == 1);
  REQUIRE(sampled.size() == eager.size());
  for (const auto& [id, sequence] : eager) {
    const SampledSequence& own = sampled.at(id);
    REQUIRE(own.logprobs.size() == sequence.logprobs.size());
    // A near tie may choose another token, and what follows differs.
    size_t i = 0;
    for (; i < sequence.tokens.size() && own.tokens[i] == sequence.tokens[i]; ++i) {
      CHECK(own.logprobs[i] == Approx(sequence.logprobs[i]).margin(kLogprobTolerance));
    }
    CHECK((i == sequence.tokens.size() ||
           own.logprobs[i] == Approx(sequence.logprobs[i]).margin(kLogprobTolerance)));
  }
}

TEST_CASE("A batch of pages names rows, pages and places", "[sampling]") {
  const KvSequence whole{.blocks = {4, 9, 2}, .length = 33};
  const KvSequence one{.blocks = {7}, .length = 16};
  PagedBatch batch;
  batch.Add({.kv = &whole, .num_rows = 3});
  batch.Add({.kv = &one, .num_rows = 1});
  batch.AddPadding(11);
  using Numbers = std::vector<int32_t>;
  CHECK(batch.rows.row_starts == Numbers({0, 3, 4, 5}));
  CHECK(batch.rows.page_starts == Numbers({0, 3, 4, 5}));
  CHECK(batch.pages == Numbers({4, 9, 2, 7, 11}));
  CHECK(batch.last_page_tokens == Numbers({1, 16, 1}));
  // Positions 30 and 31 of block 9, 32 of block 2.
  CHECK(batch.slots == Numbers({9 * 16 + 14, 9 * 16 + 15, 2 * 16, 7 * 16 + 15, 11 * 16}));
}

}  // namespace
}  // namespace lathe::worker
