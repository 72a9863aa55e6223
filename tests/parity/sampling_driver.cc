// Runs sampling requests and saves checkpoints, for tests that compare them with HF Transformers
// and PEFT.
//   lathe_sampling_driver SCRIPT.json
// SCRIPT: {"folder": …, "store": …, "max_prefill_tokens": …, "kv_cache_tokens": …,
//   "one_by_one": true if a request begins when the one before has ended,
//   "adapters": {"m": {"rank": 8, "alpha": 32, "file": WEIGHTS, "target_modules": […],
//                      "save_training": DIR, "save_sampler": DIR} | {"load": DIR}},
//   "requests": [{"id", "model", "prompt", "num_samples", "max_tokens", "temperature", "top_k",
//                 "top_p", "seed", "ignore_eos", "stop_tokens", "stop_strings",
//                 "min_p", "prompt_logprobs", "topk_prompt_logprobs", "prompt_logprobs_last_n",
//                 "target_prompt_logprobs": rows of ids, "prompt_alt_tokens_k",
//                 "topk_sample_logprobs", "tenant": without one nothing is cached}],
//   "decode": [[token ids], …]}
// Prints {"outputs": {id: …}, "counters": {…}, "decoded": [hex, …]}.
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <absl/strings/escaping.h>
#include <nlohmann/json.hpp>

#include "libs/common/status_macros.h"
#include "services/worker/checkpoint/checkpoint_store.h"
#include "services/worker/formats/safetensors/safetensors.h"
#include "services/worker/lora/adapter_layout.h"
#include "services/worker/models/json_file.h"
#include "services/worker/models/load_model.h"
#include "services/worker/sampling/sampling_engine.h"
#include "services/worker/tokenizer/tokenizer.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {
namespace {

using nlohmann::json;
using Adapters = std::map<std::string, std::shared_ptr<const AdapterWeights>>;

// `rows` are lists of token ids of equal length.
std::shared_ptr<const PromptTargets> ParseTargets(const json& rows) {
  PromptTargets targets;
  targets.offsets = {0};
  for (const json& row : rows) {
    targets.num_columns = static_cast<int64_t>(row.size());
    for (const json& token : row) targets.tokens.push_back(token);
    targets.offsets.push_back(static_cast<int64_t>(targets.tokens.size()));
  }
  return std::make_shared<const PromptTargets>(std::move(targets));
}

SampleRequest ParseRequest(const json& value) {
  SampleRequest request;
  request.request_id = value.at("id");
  request.tenant_id = value.value("tenant", "");
  request.version_id = value.value("model", "");
  request.prompt = value.at("prompt").get<std::vector<int32_t>>();
  request.num_samples = value.value("num_samples", int64_t{1});
  request.prompt_logprobs = value.value("prompt_logprobs", false);
  request.topk_prompt_logprobs = value.value("topk_prompt_logprobs", int64_t{0});
  request.prompt_logprobs_last_n = value.value("prompt_logprobs_last_n", int64_t{0});
  request.prompt_alt_tokens_k = value.value("prompt_alt_tokens_k", int64_t{0});
  request.topk_sample_logprobs = value.value("topk_sample_logprobs", int64_t{0});
  if (value.contains("target_prompt_logprobs")) {
    request.targets = ParseTargets(value["target_prompt_logprobs"]);
  }
  SamplingParams& params = request.params;
  params.max_tokens = value.at("max_tokens");
  params.temperature = value.value("temperature", params.temperature);
  params.top_k = value.value("top_k", params.top_k);
  params.top_p = value.value("top_p", params.top_p);
  params.min_p = value.value("min_p", params.min_p);
  params.seed = value.value("seed", params.seed);
  params.ignore_eos = value.value("ignore_eos", false);
  params.stop_tokens = value.value("stop_tokens", std::vector<int32_t>{});
  params.stop_strings = value.value("stop_strings", std::vector<std::string>{});
  return request;
}

json ToJson(const TopkLogprobs& top) {
  return {{"token_ids", top.token_ids}, {"logprobs", top.logprobs}};
}

json ToJson(const SampleOutput& output) {
  json sequences = json::array();
  for (const SampledSequence& sequence : output.sequences) {
    sequences.push_back({{"stopped", sequence.stopped},
                         {"tokens", sequence.tokens},
                         {"logprobs", sequence.logprobs}});
    if (sequence.topk_logprobs) sequences.back()["topk"] = ToJson(*sequence.topk_logprobs);
  }
  json value = {{"sequences", sequences},
                {"prompt_logprobs", output.prompt_logprobs},
                {"hit_tokens", output.prompt_cache_hit_tokens}};
  if (output.topk_prompt_logprobs) value["topk"] = ToJson(*output.topk_prompt_logprobs);
  if (output.target_prompt_logprobs) value["targets"] = output.target_prompt_logprobs->logprobs;
  if (output.prompt_alt_tokens) {
    value["alternatives"] = {{"token_ids", output.prompt_alt_tokens->tokens},
                             {"logprobs", output.prompt_alt_tokens->logprobs}};
  }
  return value;
}

absl::StatusOr<std::unique_ptr<Adapter>> MakeAdapter(const json& value, const Model& model) {
  LoraSpec lora;
  lora.rank = value.at("rank");
  lora.alpha = value.value("alpha", lora.alpha);
  lora.target_modules = value.value("target_modules", lora.target_modules);
  auto adapter = std::make_unique<Adapter>(model.part(), lora, model.device());
  ASSIGN_OR_RETURN(const SafetensorsFile file,
                   SafetensorsFile::Open(std::string(value.at("file"))));
  for (const AdapterMatrix& m : AdapterLayout(model.part(), lora)) {
    ASSIGN_OR_RETURN(const at::Tensor matrix, file.Read(m.name()));
    m.Of(adapter->MutableParameters()).copy_(matrix);
  }
  return adapter;
}

absl::StatusOr<std::shared_ptr<const AdapterWeights>> PrepareAdapter(const std::string& model_id,
                                                                     const json& value,
                                                                     const Model& model,
                                                                     CheckpointStore& store) {
  if (value.contains("load")) {
    ASSIGN_OR_RETURN(const LoadedAdapter loaded,
                     store.Load(value.at("load"), /*with_optimizer=*/false, model.device()));
    return loaded.adapter->Publish();
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<Adapter> adapter, MakeAdapter(value, model));
  if (value.contains("save_training")) {
    const ModelSnapshot state{.model_id = model_id,
                              .weights = adapter->Publish(),
                              .exp_avg = adapter->exp_avg,
                              .exp_avg_sq = adapter->exp_avg_sq};
    RETURN_IF_ERROR(store.SaveTraining(value.at("save_training"), state, "").status());
  }
  if (value.contains("save_sampler")) {
    RETURN_IF_ERROR(
        store.SaveSampler(value.at("save_sampler"), model_id, *adapter->Publish(), 0, "").status());
  }
  return adapter->Publish();
}

absl::Status RunToEnd(SamplingEngine& engine, json& outputs) {
  while (engine.HasWork()) {
    engine.RunPass();
    for (const FinishedSample& finished : engine.TakeFinished()) {
      RETURN_IF_ERROR(finished.output.status());
      outputs[finished.request_id] = ToJson(*finished.output);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<json> RunRequests(const json& script, SamplingEngine& engine,
                                 const Adapters& adapters) {
  const bool one_by_one = script.value("one_by_one", false);
  json outputs = json::object();
  for (const json& value : script.value("requests", json::array())) {
    const std::string model_id = value.value("model", "");
    RETURN_IF_ERROR(
        engine.Add(ParseRequest(value), model_id.empty() ? nullptr : adapters.at(model_id)));
    if (one_by_one) RETURN_IF_ERROR(RunToEnd(engine, outputs));
  }
  RETURN_IF_ERROR(RunToEnd(engine, outputs));
  return outputs;
}

absl::Status RunScript(const std::string& path) {
  ASSIGN_OR_RETURN(const json script, ReadJsonObject(path));
  at::set_num_threads(1);
  const std::string folder = script.at("folder");
  ASSIGN_OR_RETURN(const ComputeDtype compute_dtype,
                   ParseComputeDtype(script.value("compute_dtype", "fp32")));
  ASSIGN_OR_RETURN(
      const LoadedModel loaded,
      LoadModel(folder, at::Device(script.value("device", "cpu")), nullptr, compute_dtype));
  ASSIGN_OR_RETURN(const Tokenizer tokenizer, Tokenizer::Load(folder));
  const ModelPart& part = loaded.model->part();
  CheckpointStore store(script.value("store", "."), part, folder, loaded.content_hash);

  Adapters adapters;
  const json wanted = script.value("adapters", json::object());
  for (const auto& [model_id, value] : wanted.items()) {
    ASSIGN_OR_RETURN(adapters[model_id], PrepareAdapter(model_id, value, *loaded.model, store));
  }
  SamplingOptions options;
  options.max_prefill_tokens = script.value("max_prefill_tokens", options.max_prefill_tokens);
  if (script.contains("kv_cache_tokens")) {
    options.kv_cache_bytes =
        script["kv_cache_tokens"].get<int64_t>() *
        KvCache::BytesPerToken(part.local, loaded.model->attention_arithmetic());
  }
  SamplingEngine engine(*loaded.model, options, &tokenizer);
  ASSIGN_OR_RETURN(const json outputs, RunRequests(script, engine, adapters));
  json decoded = json::array();
  for (const json& tokens : script.value("decode", json::array())) {
    decoded.push_back(absl::BytesToHexString(tokenizer.Decode(tokens.get<std::vector<int32_t>>())));
  }
  const SamplingCounters& counters = engine.counters();
  const json result = {{"outputs", outputs},
                       {"decoded", decoded},
                       {"counters",
                        {{"prefill_passes", counters.prefill_passes},
                         {"decode_passes", counters.decode_passes},
                         {"preemptions", counters.preemptions}}}};
  std::puts(result.dump().c_str());
  return absl::OkStatus();
}

}  // namespace
}  // namespace lathe::worker

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: lathe_sampling_driver SCRIPT.json\n", stderr);
    return 2;
  }
  const absl::Status status = lathe::worker::RunScript(argv[1]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return 1;
}
