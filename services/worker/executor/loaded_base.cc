#include "services/worker/executor/loaded_base.h"

#include <string>
#include <system_error>
#include <utility>

#include <ATen/Parallel.h>
#include <c10/core/CachingDeviceAllocator.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "libs/common/logging/logging.h"
#include "libs/common/memory/available_memory.h"
#include "libs/common/status_macros.h"
#include "services/worker/checkpoint/atomic_directory.h"
#include "services/worker/executor/exact_probe.h"
#include "services/worker/executor/step_rate.h"
#include "services/worker/sampling/kv_cache.h"
#include "services/worker/torch_guard.h"

namespace lathe::worker {
namespace {

ModelInfo Describe(const ExecutorOptions& options, const ModelSpec& spec,
                   const std::string& content_hash) {
  ModelInfo info;
  info.name = options.model_name;
  info.content_hash = content_hash;
  info.arch = spec.family;
  info.max_context_length = spec.max_position_embeddings;
  info.vocab_size = spec.vocab_size;
  info.tokenizer_id = options.tokenizer_id;
  info.eos_token_ids = spec.eos_token_ids;
  info.tied_embeddings = spec.tie_word_embeddings;
  return info;
}

// How long a layer step of training, or a chunk of prompts, may hold up samples that decode.
absl::Duration StepDuration(at::Device device) {
  return device.is_cpu() ? absl::Milliseconds(100) : absl::Milliseconds(20);
}

absl::StatusOr<int64_t> AvailableBytes(at::Device device) {
  if (device.is_cpu()) return AvailableMemoryBytes();
  return static_cast<int64_t>(
      c10::getDeviceAllocator(device.type())->getMemoryInfo(device.index()).first);
}

absl::StatusOr<MemoryPlan> PlanAround(const Model& model, int64_t available_bytes, double fraction,
                                      absl::Duration layer_row) {
  const int64_t cpu_threads = model.device().is_cpu() ? at::get_num_threads() : 0;
  ASSIGN_OR_RETURN(
      const MemoryPlan plan,
      PlanMemory(model.spec(),
                 {.available_bytes = available_bytes,
                  .fraction = fraction,
                  .weight_bytes = model.WeightBytes(),
                  .cpu_threads = cpu_threads,
                  .kv_element_bytes = KvCache::ElementBytes(model.attention_arithmetic()),
                  .tokens_per_step = TokensPerStep(layer_row, StepDuration(model.device()))}));
  LogInfo("memory planned", {{"available_bytes", available_bytes},
                             {"fraction", fraction},
                             {"weight_bytes", plan.weight_bytes},
                             {"adapter_bytes", plan.adapter_bytes},
                             {"kv_cache_bytes", plan.kv_cache_bytes},
                             {"sampling_bytes", plan.sampling_bytes},
                             {"arena_bytes", plan.arena_bytes},
                             {"token_budget", plan.token_budget},
                             {"checkpointed_layers", plan.num_checkpointed},
                             {"head_chunk_elements", plan.head_chunk_elements}});
  return plan;
}

std::optional<Tokenizer> LoadTokenizer(const std::filesystem::path& folder) {
  absl::StatusOr<Tokenizer> tokenizer = Tokenizer::Load(folder);
  if (tokenizer.ok()) return *std::move(tokenizer);
  LogWarn("no tokenizer: stop strings are refused", {{"error", tokenizer.status().message()}});
  return std::nullopt;
}

}  // namespace

absl::StatusOr<at::Device> ChooseDevice(const std::string& name) {
  const bool has_cuda = at::hasCUDA();
  if (name == "cpu" || (name == "auto" && !has_cuda)) return at::Device(at::kCPU);
  if (name == "auto" || (name == "cuda" && has_cuda)) return at::Device(at::kCUDA, 0);
  if (name == "cuda") return absl::InvalidArgumentError("device is cuda, this machine has none");
  return absl::InvalidArgumentError(absl::StrCat("device is ", name, ", want auto, cpu or cuda"));
}

int64_t WeightBytes(const std::filesystem::path& folder) {
  int64_t bytes = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() != ".safetensors") continue;
    const uintmax_t size = entry.file_size(error);
    if (!error) bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

absl::StatusOr<LoadedBase> LoadBase(const ExecutorOptions& options, at::Device device,
                                    const LoadProgress& progress) {
  ASSIGN_OR_RETURN(const ComputeDtype compute_dtype, ParseComputeDtype(options.compute_dtype));
  ASSIGN_OR_RETURN(const Numerics numerics, ParseNumerics(options.numerics));
  ASSIGN_OR_RETURN(const int64_t available_bytes, Guarded("reading of the device's memory",
                                                          [&] { return AvailableBytes(device); }));
  ASSIGN_OR_RETURN(LoadedModel loaded, Guarded("load of the base model", [&] {
                     return LoadModel(options.model_path, device, progress, compute_dtype);
                   }));
  if (numerics == Numerics::kExact) {
    RETURN_IF_ERROR(
        Guarded("probe of exact numerics", [&] { return ProbeExactNumerics(*loaded.model); }));
  }
  absl::Duration layer_row;
  ASSIGN_OR_RETURN(const MemoryPlan memory, Guarded("plan of the memory", [&] {
                     layer_row = MeasureLayerRow(*loaded.model);
                     return PlanAround(*loaded.model, available_bytes, options.memory_fraction,
                                       layer_row);
                   }));
  RETURN_IF_ERROR(SweepAttempts(options.checkpoint_root, absl::Now()));
  LoadedBase base;
  base.memory = memory;
  base.prefill_chunk_tokens = PrefillTokens(
      layer_row, loaded.model->spec().num_layers,
      options.prefill_stall > absl::ZeroDuration() ? options.prefill_stall : StepDuration(device));
  LogInfo("prefill planned", {{"chunk_tokens", base.prefill_chunk_tokens}});
  base.numerics = numerics;
  base.info = Describe(options, loaded.model->spec(), loaded.content_hash);
  base.info.token_budget = memory.token_budget;
  base.info.kv_cache_tokens = KvCache::CapacityTokens(loaded.model->spec(), memory.kv_cache_bytes,
                                                      loaded.model->attention_arithmetic());
  base.store = std::make_unique<CheckpointStore>(options.checkpoint_root, loaded.model->part(),
                                                 options.model_name, loaded.content_hash);
  base.tokenizer = LoadTokenizer(options.model_path);
  base.model = std::move(loaded.model);
  return base;
}

}  // namespace lathe::worker
