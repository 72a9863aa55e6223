// Measures training passes without the service. Reads commands from stdin, one JSON object per
// line, and writes one answer per line to stdout. tests/bench/training/training_bench.py runs it
// and compares it with PEFT.
//   {"op": "load", "folder": F, "threads": 2, "compute_dtype": "auto", "numerics": "exact"}
//   {"op": "adapter", "model": "m0", "rank": 8, "train_unembed": false}
//   {"op": "train", "sequences": [{"model": "m0", "loss": "ppo", "tokens": [...]}],
//    "one_by_one": false}
//   {"op": "step", "model": "m0"}
//   {"op": "bare_adam", "elements": 25000000}
//   {"op": "matmul", "rows": 512}
//   {"op": "profile", "of": {"op": "train", ...}}
// Every answer but that of adapter ("parameters") has "seconds". load adds "resident_mib", matmul
// adds "gflops". profile adds what ProfileDevice lists to the answer of its command. train adds
// "tokens", "passes" and "peak_mib", the process's peak memory during the command.
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/InferenceMode.h>
#include <nlohmann/json.hpp>

#include "libs/common/losses/registry.h"
#include "services/worker/layers/base_linear.h"
#include "services/worker/lora/adapter.h"
#include "services/worker/memory/tensor_memory.h"
#include "services/worker/models/load_model.h"
#include "services/worker/torch/aten.h"
#include "services/worker/torch/thread_waiting.h"
#include "services/worker/training/adamw.h"
#include "services/worker/training/trainer.h"
#include "tests/bench/device_profile.h"
#include "tests/bench/device_time.h"
#include "tests/bench/training/bare_adam.h"

namespace lathe::worker {
namespace {

using nlohmann::json;

double SecondsOf(const auto& run) {
  const auto begin = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Returns the value of a line in /proc/self/status, in MiB; 0 if it is missing.
double StatusMib(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name + ":")) return std::stod(line.substr(name.size() + 1)) / 1024;
  }
  return 0;
}

// Resets VmHWM to the memory in use now.
void ResetPeak() { std::ofstream("/proc/self/clear_refs") << "5"; }

// Makes a datum in which each token predicts the next one.
TrainDatum DatumOf(const std::vector<int32_t>& tokens, const LossProgram& loss) {
  TrainDatum datum;
  datum.tokens.assign(tokens.begin(), tokens.end() - 1);
  datum.targets.assign(tokens.begin() + 1, tokens.end());
  const size_t size = datum.tokens.size();
  if (loss.inputs == LossInputs::kWeights) {
    datum.weights.assign(size, 1.0f);
  } else {
    datum.logprobs.assign(size, -6.0f);
    datum.advantages.assign(size, 0.5f);
  }
  return datum;
}

void BareAdamStep(std::vector<std::vector<float>>& buffers) {
  at::parallel_for(0, static_cast<int64_t>(buffers[0].size()), 65536,
                   [&](int64_t begin, int64_t end) {
                     BareAdam(buffers[0].data(), buffers[1].data(), buffers[2].data(),
                              buffers[3].data(), begin, end);
                   });
}

class Bench {
 public:
  json Load(const json& command) {
    at::set_num_threads(command.at("threads"));
    const double seconds = SecondsOf([&] {
      const auto dtype = ParseComputeDtype(command.value("compute_dtype", "auto"));
      auto loaded = LoadModel(command.at("folder").get<std::string>(),
                              at::Device(command.value("device", "cpu")), nullptr, *dtype);
      if (!loaded.ok()) throw std::runtime_error(std::string(loaded.status().message()));
      model_ = std::move(loaded->model);
    });
    FreeUnusedTensorMemory();  // buffers that loading used temporarily
    // Equal to MemoryPlan's values with ample memory. The arena is the size that the goals allow.
    const auto numerics = ParseNumerics(command.value("numerics", "fast"));
    trainer_.emplace(
        *model_, adapters_,
        TrainerOptions{.head_chunk_elements =
                           command.value("head_rows", int64_t{256}) * model_->spec().vocab_size,
                       .arena_bytes = command.value("arena_mib", int64_t{2304}) << 20,
                       .numerics = *numerics});
    return {{"seconds", seconds}, {"resident_mib", StatusMib("VmRSS")}};
  }

  json AddAdapter(const json& command) {
    LoraSpec lora;
    lora.rank = command.at("rank");
    lora.target_modules = LoraModulesOf(true, true, command.value("train_unembed", false));
    auto adapter = std::make_shared<Adapter>(model_->part(), lora, model_->device());
    // Make LoRA B nonzero, as after some steps. With B zero, half of the backward products would
    // multiply by zeros.
    adapter->MutableParameters().add_(at::randn_like(adapter->parameters()).mul_(1e-3));
    const int64_t size = adapter->num_parameters();
    adapters_.Put(command.at("model"), std::move(adapter));
    return {{"parameters", size}};
  }

  json Train(const json& command) {
    std::vector<TrainBatch> batches;
    const bool one_by_one = command.value("one_by_one", false);
    std::map<std::pair<std::string, std::string>, size_t> places;
    int64_t num_tokens = 0;
    for (const json& sequence : command.at("sequences")) {
      const std::string model = sequence.at("model");
      const std::string loss = sequence.value("loss", "cross_entropy");
      if (batches.empty() || one_by_one) {
        batches.emplace_back();
        places.clear();
      }
      auto& requests = batches.back().requests;
      const auto [place, is_new] = places.emplace(std::pair(model, loss), requests.size());
      if (is_new) {
        TrainRequest request;
        request.request_id = std::to_string(++num_requests_);
        request.model_id = model;
        request.seq_id = num_requests_;
        request.loss = DefaultLoss(loss);
        requests.push_back(std::move(request));
      }
      requests[place->second].data.push_back(
          DatumOf(sequence.at("tokens").get<std::vector<int32_t>>(),
                  *requests[place->second].loss.program));
      num_tokens += static_cast<int64_t>(requests[place->second].data.back().tokens.size());
    }
    ResetPeak();
    ResetDevicePeak(model_->device());
    const int64_t passes_before = trainer_->counters().train_passes;
    const double seconds = SecondsOf([&] {
      for (TrainBatch& batch : batches) {
        trainer_->Begin(std::move(batch));
        while (trainer_->RunUnit()) {
        }
      }
      WaitForDevice(model_->device());
    });
    for (const FinishedRequest& request : trainer_->TakeFinished()) {
      if (!request.output.ok()) {
        throw std::runtime_error(std::string(request.output.status().message()));
      }
    }
    return {{"seconds", seconds},
            {"tokens", num_tokens},
            {"passes", trainer_->counters().train_passes - passes_before},
            {"peak_mib", StatusMib("VmHWM")},
            {"device_peak_mib", DevicePeakMib(model_->device())}};
  }

  json Step(const json& command) {
    const auto adapter = adapters_.Find(command.at("model"));
    adapter->gradient.fill_(1e-3f);
    const double seconds = SecondsOf([&] {
      if (!ApplyAdamW(*adapter, {}).ok()) throw std::runtime_error("optim_step failed");
      adapter->Publish();
      WaitForDevice(model_->device());
    });
    return {{"seconds", seconds}};
  }

  json BareStep(const json& command) {
    const auto size = command.at("elements").get<size_t>();
    if (buffers_.empty() || buffers_[0].size() != size) {
      buffers_.assign(4, std::vector<float>(size, 1e-3f));
    }
    return {{"seconds", SecondsOf([&] { BareAdamStep(buffers_); })}};
  }

  // Rate of the layers' matrix products, forward and backward, with `rows` rows.
  json Matmul(const json& command) {
    const DecoderSpec& spec = model_->spec();
    const int64_t rows = command.at("rows");
    const LayerSpec& layer = spec.layers[0];
    const int64_t q = layer.attention.num_heads * layer.attention.head_dim;
    const int64_t kv = layer.attention.num_kv_heads * layer.attention.head_dim;
    const std::vector<std::pair<int64_t, int64_t>> shapes = {
        {q + 2 * kv, spec.hidden_size},
        {spec.hidden_size, q},
        {2 * layer.intermediate_size, spec.hidden_size},
        {spec.hidden_size, layer.intermediate_size}};
    const MatmulArithmetic arithmetic =
        CpuHasBf16() ? MatmulArithmetic::kBf16 : MatmulArithmetic::kFp32;
    double flops = 0;
    double seconds = 0;
    for (const auto& [n, k] : shapes) {
      const BaseWeight w(at::randn({n, k}).to(at::kBFloat16));
      const at::Tensor x = at::randn({rows, k});
      const at::Tensor dy = at::randn({rows, n});
      BaseLinear(x, w, {}, arithmetic);
      seconds += SecondsOf([&] {
        BaseLinear(x, w, {}, arithmetic);
        BaseLinearBackward(dy, w, arithmetic);
      });
      flops += 4.0 * static_cast<double>(rows * n * k);
    }
    return {{"seconds", seconds}, {"gflops", flops / seconds * 1e-9}};
  }

  json Profile(const json& command) {
    json answer;
    json profile = ProfileDevice(model_->device(), command.value("most", size_t{20}),
                                 [&] { answer = Run(command.at("of")); });
    answer.update(profile);
    return answer;
  }

  json Run(const json& command) {
    const std::string op = command.at("op");
    if (op == "load") return Load(command);
    if (op == "adapter") return AddAdapter(command);
    if (op == "train") return Train(command);
    if (op == "step") return Step(command);
    if (op == "bare_adam") return BareStep(command);
    if (op == "matmul") return Matmul(command);
    if (op == "profile") return Profile(command);
    throw std::runtime_error("unknown op " + op);
  }

 private:
  std::unique_ptr<const Model> model_;
  AdapterPool adapters_;
  std::optional<Trainer> trainer_;
  std::vector<std::vector<float>> buffers_;
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
