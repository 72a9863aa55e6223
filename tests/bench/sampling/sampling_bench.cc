// Measures sampling without the service. Reads commands from stdin, one JSON object per line, and
// writes one answer per line to stdout.
//   {"op": "load", "folder": F, "threads": 2, "compute_dtype": "auto", "kv_cache_mib": 1024}
//   {"op": "bandwidth", "mib": 1024}
//   {"op": "matmul", "rows": 512}
//   {"op": "decode", "sequences": 8, "context": 64, "tokens": 32, "adapters": 4, "rank": 8,
//    "train_unembed": false}
//   {"op": "prefill", "tokens": 512}
//   {"op": "group", "samples": 8, "prompt_tokens": 512, "tokens": 32, "separate": false}
//   {"op": "profile", "of": {"op": "decode", ...}}
//   {"op": "cold", ...}, {"op": "share", ...}, {"op": "snapshots", ...}: see executor_bench.h
// `adapters` is the number of adapters, assigned to the sequences round-robin; 0 or absent: the
// base model. Commands that sample accept `temperature` (1) and `top_p` (1). Prompts are random and
// all different.
//
// Each answer has "seconds", the duration of the measured part. Commands that sample add the number
// of "passes" and sampled "tokens" in it. Further fields:
//   load           "weight_bytes", which a decode pass reads once
//   bandwidth      "gb_per_second"
//   matmul         "gflops" of the layers' matrix products
//   decode         "adapter_bytes" of the adapters in use; excludes each sequence's first token
//   prefill        "gflops" as for matmul, plus the head's single row
//   prefill, group "first_token_seconds" until all samples had their first token
//   profile        the answer of its command and what ProfileDevice lists
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <iostream>
#include <memory>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/InferenceMode.h>
#include <nlohmann/json.hpp>

#include "services/worker/kernels/cpu/matmul/weight_panels.h"
#include "services/worker/layers/base_linear.h"
#include "services/worker/lora/adapter.h"
#include "services/worker/memory/tensor_memory.h"
#include "services/worker/models/load_model.h"
#include "services/worker/sampling/sampling_engine.h"
#include "services/worker/torch/aten.h"
#include "services/worker/torch/thread_waiting.h"
#include "tests/bench/device_profile.h"
#include "tests/bench/sampling/executor_bench.h"
#include "tests/bench/sampling/stream_read.h"

namespace lathe::worker {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;
using Adapters = std::vector<std::shared_ptr<const AdapterWeights>>;

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Weight shapes [out_features, in_features] of the four matrix products of a layer.
std::vector<std::pair<int64_t, int64_t>> LayerShapes(const DecoderSpec& spec) {
  const LayerSpec& layer = spec.layers[0];
  const int64_t q = layer.attention.num_heads * layer.attention.head_dim;
  const int64_t kv = layer.attention.num_kv_heads * layer.attention.head_dim;
  return {{q + 2 * kv, spec.hidden_size},
          {spec.hidden_size, q},
          {2 * layer.intermediate_size, spec.hidden_size},
          {spec.hidden_size, layer.intermediate_size}};
}

class Bench {
 public:
  json Run(const json& command) {
    const std::string op = command.at("op");
    if (op == "load") return Load(command);
    if (op == "bandwidth") return Bandwidth(command);
    if (op == "matmul") return Matmul(command);
    if (op == "decode") return Decode(command);
    if (op == "prefill") return Prefill(command);
    if (op == "profile") return Profile(command);
    if (op == "group") return Group(command);
    if (op == "cold") return Executor().Cold(command);
    if (op == "share") return Executor().Share(command);
    if (op == "snapshots") return Executor().Snapshots(command);
    throw std::runtime_error("unknown op " + op);
  }

 private:
  json Load(const json& command) {
    at::set_num_threads(command.at("threads"));
    kv_cache_bytes_ = command.value("kv_cache_mib", int64_t{1024}) << 20;
    const Clock::time_point begin = Clock::now();
    const auto dtype = ParseComputeDtype(command.value("compute_dtype", "auto"));
    auto loaded = LoadModel(command.at("folder").get<std::string>(),
                            at::Device(command.value("device", "cpu")), nullptr, *dtype);
    if (!loaded.ok()) throw std::runtime_error(std::string(loaded.status().message()));
    executor_.reset();
    model_ = std::move(loaded->model);
    return {{"seconds", SecondsSince(begin)}, {"weight_bytes", model_->WeightBytes()}};
  }

  static json Bandwidth(const json& command) {
    const int64_t size = (command.value("mib", int64_t{1024}) << 20) / 8;
    // Huge pages, like the memory of the weights.
    const std::shared_ptr<void> memory = AllocateHugePages(size * 8);
    const std::span words(static_cast<const uint64_t*>(memory.get()), static_cast<size_t>(size));
    std::memset(memory.get(), 1, words.size_bytes());
    std::atomic<uint64_t> sum = 0;
    const auto read = [&] {
      at::parallel_for(0, at::get_num_threads(), 1, [&](int64_t first, int64_t last) {
        const int64_t n = at::get_num_threads();
        sum += ReadStream(words, size * first / n, size * last / n);
      });
    };
    read();
    const Clock::time_point begin = Clock::now();
    read();
    const double seconds = SecondsSince(begin);
    return {{"seconds", seconds},
            {"gb_per_second", static_cast<double>(size) * 8e-9 / seconds},
            {"sum", sum.load()}};
  }

  // Rate of the layers' matrix products, measured one at a time.
  json Matmul(const json& command) const {
    const int64_t rows = command.at("rows");
    const MatmulArithmetic arithmetic =
        CpuHasBf16() ? MatmulArithmetic::kBf16 : MatmulArithmetic::kFp32;
    double flops = 0;
    double seconds = 0;
    for (const auto& [n, k] : LayerShapes(model_->spec())) {
      const BaseWeight w(at::randn({n, k}).to(at::kBFloat16));
      const at::Tensor x = at::randn({rows, k});
      BaseLinear(x, w, {}, arithmetic);
      const Clock::time_point begin = Clock::now();
      BaseLinear(x, w, {}, arithmetic);
      seconds += SecondsSince(begin);
      flops += 2.0 * static_cast<double>(rows * n * k);
    }
    return {{"seconds", seconds}, {"gflops", flops / seconds * 1e-9}};
  }

  json Decode(const json& command) {
    const int64_t num_sequences = command.at("sequences");
    const int64_t context = command.at("context");
    const int64_t rank = command.value("rank", int64_t{8});
    const bool train_unembed = command.value("train_unembed", false);
    const Adapters& adapters =
        AdaptersOf(command.value("adapters", size_t{0}), rank, train_unembed);
    SamplingEngine engine = MakeEngine(num_sequences * context);
    for (int64_t i = 0; i < num_sequences; ++i) {
      const auto adapter = adapters.empty() ? nullptr : adapters[i % adapters.size()];
      Add(engine, MakeRequest(command, context), adapter);
    }
    RunUntilSampled(engine, num_sequences);
    const SamplingCounters before = engine.counters();
    json answer = Finish(engine, before, Clock::now());
    int64_t adapter_bytes = 0;
    for (const auto& adapter : adapters) adapter_bytes += adapter->num_bytes();
    answer["adapter_bytes"] = adapter_bytes;
    return answer;
  }

  json Prefill(const json& command) {
    const int64_t num_tokens = command.at("tokens");
    SamplingEngine engine = MakeEngine(num_tokens);
    SampleRequest request = MakeRequest(command, num_tokens);
    request.params.max_tokens = 1;
    Add(engine, std::move(request), nullptr);
    const Clock::time_point begin = Clock::now();
    RunUntilSampled(engine, 1);
    json answer = Finish(engine, {}, begin);
    const DecoderSpec& spec = model_->spec();
    double products = static_cast<double>(spec.vocab_size * spec.hidden_size);
    for (const auto& [n, k] : LayerShapes(spec)) {
      products += static_cast<double>(spec.num_layers() * num_tokens * n * k);
    }
    answer["gflops"] = 2 * products / answer.at("seconds").get<double>() * 1e-9;
    answer["first_token_seconds"] = answer.at("seconds");
    return answer;
  }

  json Group(const json& command) {
    const int64_t num_samples = command.at("samples");
    const int64_t prompt_tokens = command.at("prompt_tokens");
    const bool separate = command.value("separate", false);
    SamplingEngine engine = MakeEngine(prompt_tokens);
    for (int64_t i = 0; i < (separate ? num_samples : 1); ++i) {
      SampleRequest request = MakeRequest(command, prompt_tokens);
      request.num_samples = separate ? 1 : num_samples;
      Add(engine, std::move(request), nullptr);
    }
    const Clock::time_point begin = Clock::now();
    RunUntilSampled(engine, num_samples);
    const double first = SecondsSince(begin);
    json answer = Finish(engine, {}, begin);
    answer["first_token_seconds"] = first;
    return answer;
  }

  json Profile(const json& command) {
    json answer;
    json profile = ProfileDevice(model_->device(), command.value("most", size_t{20}),
                                 [&] { answer = Run(command.at("of")); });
    answer.update(profile);
    return answer;
  }

  // Makes an engine whose prefill pass takes at least `prompt_tokens` tokens.
  SamplingEngine MakeEngine(int64_t prompt_tokens) const {
    SamplingOptions options{.kv_cache_bytes = kv_cache_bytes_};
    options.max_prefill_tokens = std::max(options.max_prefill_tokens, prompt_tokens);
    return SamplingEngine(*model_, options, /*tokenizer=*/nullptr);
  }

  SampleRequest MakeRequest(const json& command, int64_t prompt_tokens) {
    SampleRequest request;
    request.request_id = std::to_string(++num_requests_);
    request.params.max_tokens = command.value("tokens", int64_t{1});
    request.params.temperature = command.value("temperature", 1.0);
    request.params.top_p = command.value("top_p", 1.0);
    request.params.seed = static_cast<uint64_t>(num_requests_);
    request.params.ignore_eos = true;
    std::uniform_int_distribution<int32_t> token(
        0, static_cast<int32_t>(model_->spec().vocab_size) - 1);
    for (int64_t i = 0; i < prompt_tokens; ++i) request.prompt.push_back(token(random_));
    return request;
  }

  static void Add(SamplingEngine& engine, SampleRequest request,
                  std::shared_ptr<const AdapterWeights> adapter) {
    const absl::Status status = engine.Add(std::move(request), std::move(adapter));
    if (!status.ok()) throw std::runtime_error(std::string(status.message()));
  }

  static void RunUntilSampled(SamplingEngine& engine, int64_t num_tokens) {
    while (engine.counters().generated_tokens < num_tokens) engine.RunPass();
  }

  // Runs the remaining work. Counts passes and tokens since `before`, and the time since `begin`.
  static json Finish(SamplingEngine& engine, const SamplingCounters& before,
                     Clock::time_point begin) {
    while (engine.HasWork()) {
      engine.RunPass();
      for (const FinishedSample& finished : engine.TakeFinished()) {
        if (finished.output.ok()) continue;
        throw std::runtime_error(std::string(finished.output.status().message()));
      }
    }
    const SamplingCounters& now = engine.counters();
    const int64_t passes =
        now.decode_passes - before.decode_passes + now.prefill_passes - before.prefill_passes;
    return {{"seconds", SecondsSince(begin)},
            {"passes", passes},
            {"tokens", now.generated_tokens - before.generated_tokens}};
  }

  ExecutorBench& Executor() {
    if (executor_ == nullptr) executor_ = std::make_unique<ExecutorBench>(*model_, kv_cache_bytes_);
    return *executor_;
  }

  // Returns the adapters of the previous command if they match; otherwise creates them.
  const Adapters& AdaptersOf(size_t count, int64_t rank, bool train_unembed) {
    const LoraSpec lora{.rank = rank, .target_modules = LoraModulesOf(true, true, train_unembed)};
    const auto is_alike = [&](const auto& adapter) {
      return adapter->lora.rank == rank && adapter->lora.target_modules == lora.target_modules;
    };
    if (adapters_.size() == count && std::all_of(adapters_.begin(), adapters_.end(), is_alike)) {
      return adapters_;
    }
    adapters_.clear();
    for (size_t i = 0; i < count; ++i) {
      Adapter adapter(model_->part(), lora, model_->device());
      // Make LoRA B nonzero: with B zero, half of the products would multiply by zeros.
      adapter.MutableParameters().add_(at::randn_like(adapter.parameters()).mul_(1e-3));
      adapters_.push_back(adapter.Publish());
    }
    return adapters_;
  }

  std::unique_ptr<const Model> model_;
  int64_t kv_cache_bytes_ = 0;
  Adapters adapters_;
  std::unique_ptr<ExecutorBench> executor_;  // created on first use
  std::mt19937 random_{1};
  int64_t num_requests_ = 0;
};

}  // namespace
}  // namespace lathe::worker

int main(int /*argc*/, char** argv) {
  lathe::worker::RestartWithSleepingOpenMp(argv);
  lathe::worker::UseBlockCacheForTensors();
  const c10::InferenceMode no_autograd;
  lathe::worker::Bench bench;
  for (std::string line; std::getline(std::cin, line);) {
    try {
      std::cout << bench.Run(nlohmann::json::parse(line)).dump() << std::endl;
    } catch (const std::exception& error) {
      std::cerr << error.what() << std::endl;
      return 1;
    }
  }
  return 0;
}
