#include "services/worker/executor/startup/machine_arithmetic.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Version.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/worker/lora/adapter.h"
#include "services/worker/models/packed_attention.h"
#include "services/worker/sampling/attention/cached_attention.h"
#include "services/worker/sampling/cache/kv_cache.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {
namespace {

// MKL chooses its code by the processor's maker.
const char* Maker() {
#if defined(__x86_64__)
  if (__builtin_cpu_is("intel")) return "intel";
  if (__builtin_cpu_is("amd")) return "amd";
#endif
  return "another maker";
}

std::string InstructionSets() {
  std::string names;
#if defined(__x86_64__)
  const std::pair<const char*, int> sets[] = {{"avx2", __builtin_cpu_supports("avx2")},
                                              {"fma", __builtin_cpu_supports("fma")},
                                              {"avx512f", __builtin_cpu_supports("avx512f")},
                                              {"avx512bw", __builtin_cpu_supports("avx512bw")},
                                              {"avx512dq", __builtin_cpu_supports("avx512dq")},
                                              {"avx512vl", __builtin_cpu_supports("avx512vl")},
                                              {"avx512vnni", __builtin_cpu_supports("avx512vnni")},
                                              {"avx512bf16", __builtin_cpu_supports("avx512bf16")}};
  for (const auto& [name, has_it] : sets) {
    if (has_it != 0) absl::StrAppend(&names, " ", name);
  }
#endif
  return names.empty() ? " nothing" : names;
}

// Lengths around the sizes at which kernels change code paths: vectors, tiles, blocks of the cache.
constexpr int64_t kLengths[] = {1, 2, 5, 16, 31, 33, 64, 67};
constexpr int64_t kProbedLayer = 0;

// Results of one sequence, by name.
using Numbers = std::vector<std::pair<std::string, at::Tensor>>;

class Probe {
 public:
  explicit Probe(const Model& model) : model_(model) {
    const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(1);
    for (const int64_t length : kLengths) {
      tokens_.push_back(at::randint(model.spec().vocab_size, {length}, generator, at::kLong));
      adapters_.push_back(std::make_unique<Adapter>(
          model.part(), LoraSpec{.rank = 1 + length % 9, .seed = 1}, model.device()));
      adapters_.back()->MutableParameters().normal_(0, 0.02, generator);
      weights_.push_back(adapters_.back()->Publish());
    }
  }

  // Returns the results of the sequences `order`, packed in this order; indexed as `order`.
  std::vector<Numbers> Train(const std::vector<size_t>& order) const {
    const PackedRows rows = Pack(order);
    std::vector<AdapterGradients> buffers;
    std::vector<AdapterGradients*> gradients;
    for (const size_t i : order) {
      buffers.push_back(adapters_[i]->MakeGradients());
    }
    for (AdapterGradients& buffer : buffers) gradients.push_back(&buffer);
    const at::Tensor x = model_.Embed(rows);
    std::unique_ptr<LayerSaved> saved;
    const at::Tensor y = model_.LayerForwardSaving(kProbedLayer, x, rows, &saved);
    const at::Tensor h = model_.FinalNorm(y);
    const at::Tensor logits = model_.Logits(h, rows.segments);
    const at::Tensor dlogits = logits.masked_fill(at::eq(logits, -INFINITY), 0);  // no tokens
    const at::Tensor dh = model_.LogitsBackward(h, dlogits, rows.segments, gradients);
    model_.tp().Sum("gradient of the head's input", dh);
    const at::Tensor dy = model_.FinalNormBackward(y, dh);
    const at::Tensor dx = model_.LayerBackward(kProbedLayer, dy, rows, std::move(saved), gradients);
    std::vector<Numbers> result;
    for (size_t i = 0; i < order.size(); ++i) {
      const Segment& segment = rows.segments[i];
      const auto own = [&](const at::Tensor& all) {
        return all.narrow(0, segment.begin, segment.end - segment.begin);
      };
      result.push_back({{"the output of a layer", own(y)},
                        {"logits", own(logits)},
                        {"the gradient of a layer's input", own(dx)},
                        {"gradients of LoRA's matrices", buffers[i].tensors.flat}});
    }
    return result;
  }

  // Computes the sequences as a sampler does: all tokens but the last of each in one pass, the last
  // ones in a second pass.
  std::vector<Numbers> Sample(const std::vector<size_t>& order) const {
    int64_t num_tokens = 0;
    for (const size_t i : order) num_tokens += tokens_[i].size(0) + KvCache::kBlockTokens;
    const MatmulArithmetic attention = model_.attention_arithmetic();
    const DecoderSpec& local = model_.part().local;
    KvCache cache(local, num_tokens * KvCache::BytesPerToken(local, attention), attention);
    std::vector<KvSequence> sequences(order.size());
    const at::Tensor prefill = Pass(order, cache, sequences, /*is_decode=*/false);
    const at::Tensor decode = Pass(order, cache, sequences, /*is_decode=*/true);
    std::vector<Numbers> result;
    int64_t begin = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      const int64_t size = tokens_[order[i]].size(0) - 1;
      result.push_back(
          {{"the output of a layer", at::cat({prefill.narrow(0, begin, size),
                                              decode.narrow(0, static_cast<int64_t>(i), 1)})}});
      begin += size;
    }
    return result;
  }

 private:
  PackedRows Pack(const std::vector<size_t>& order) const {
    std::vector<at::Tensor> tokens, positions;
    PackedRows rows{.cu_seqlens = {0}};
    for (const size_t i : order) {
      const int64_t length = tokens_[i].size(0);
      tokens.push_back(tokens_[i]);
      positions.push_back(at::arange(length, at::kLong));
      const int64_t begin = rows.cu_seqlens.back();
      rows.cu_seqlens.push_back(begin + length);
      rows.segments.push_back({.begin = begin,
                               .end = begin + length,
                               .adapter = weights_[i].get(),
                               .gradient_index = static_cast<int64_t>(rows.segments.size())});
    }
    rows.tokens = at::cat(tokens);
    rows.positions = at::cat(positions);
    return rows;
  }

  at::Tensor Pass(const std::vector<size_t>& order, KvCache& cache,
                  std::vector<KvSequence>& sequences, bool is_decode) const {
    std::vector<at::Tensor> tokens, positions;
    PackedRows rows{.cu_seqlens = {0}};
    std::vector<CachedRows> cached;
    for (size_t place = 0; place < order.size(); ++place) {
      const at::Tensor& all = tokens_[order[place]];
      const int64_t first = is_decode ? all.size(0) - 1 : 0;
      const int64_t size = is_decode ? 1 : all.size(0) - 1;
      if (size == 0) continue;
      TORCH_CHECK(cache.Extend(sequences[place], size));
      tokens.push_back(all.narrow(0, first, size));
      positions.push_back(at::arange(first, first + size, at::kLong));
      const int64_t begin = rows.cu_seqlens.back();
      rows.cu_seqlens.push_back(begin + size);
      rows.segments.push_back(
          {.begin = begin, .end = begin + size, .adapter = weights_[order[place]].get()});
      cached.push_back({.kv = &sequences[place], .num_rows = size});
    }
    if (tokens.empty()) return at::empty({0, model_.spec().hidden_size});
    rows.tokens = at::cat(tokens);
    rows.positions = at::cat(positions);
    CachedAttention attention(cache, std::move(cached), model_.device());
    return model_.LayerForward(kProbedLayer, model_.Embed(rows), rows, attention);
  }

  const Model& model_;
  std::vector<at::Tensor> tokens_;
  std::vector<std::unique_ptr<Adapter>> adapters_;
  std::vector<std::shared_ptr<const AdapterWeights>> weights_;
};

absl::Status Compare(const Numbers& expected, const Numbers& actual, int64_t length,
                     const char* where) {
  for (size_t i = 0; i < actual.size(); ++i) {
    if (at::equal(expected[i].second, actual[i].second)) continue;
    return absl::FailedPreconditionError(absl::StrFormat(
        "numerics is exact, but on this machine %s of a sequence of %d tokens is not the same %s "
        "as alone; numerics fast makes no such promise",
        actual[i].first, length, where));
  }
  return absl::OkStatus();
}

// Number of threads of tensor code while it lives.
class ThreadCount {
 public:
  explicit ThreadCount(int count) : before_(at::get_num_threads()) { at::set_num_threads(count); }
  ~ThreadCount() { at::set_num_threads(before_); }

 private:
  const int before_;
};

}  // namespace

std::string CpuArithmetic() {
  std::string text =
      absl::StrCat(at::get_cpu_capability(), " of ", Maker(), " with", InstructionSets());
  for (const char* name : {"MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA",
                           "DNNL_MAX_CPU_ISA", "ONEDNN_DEFAULT_FPMATH_MODE"}) {
    const char* const value = std::getenv(name);
    if (value != nullptr) absl::StrAppend(&text, ", ", name, "=", value);
  }
  return text;
}

absl::Status ProbeExactNumerics(const Model& model) {
  if (!model.device().is_cpu()) {
    return absl::FailedPreconditionError(
        "numerics is exact, which only a CPU keeps; the device is a GPU");
  }
  const Probe probe(model);
  std::vector<size_t> order;
  std::vector<Numbers> alone;
  for (size_t i = 0; i < std::size(kLengths); ++i) {
    const ThreadCount one_thread(1);
    order.push_back(i);
    alone.push_back(std::move(probe.Train({i}).front()));
  }
  const std::vector<size_t> reversed(order.rbegin(), order.rend());
  // Ranks that share the layers must all run every pass, whatever one of them finds.
  absl::Status found;
  for (const std::vector<size_t>& packed : {order, reversed}) {
    const std::vector<Numbers> trained = probe.Train(packed);
    const std::vector<Numbers> sampled = probe.Sample(packed);
    for (size_t place = 0; place < packed.size(); ++place) {
      const Numbers& expected = alone[packed[place]];
      const int64_t length = kLengths[packed[place]];
      found.Update(Compare(expected, trained[place], length, "among others"));
      found.Update(Compare(expected, sampled[place], length, "in a sampling pass"));
    }
  }
  return found;
}

}  // namespace lathe::worker
