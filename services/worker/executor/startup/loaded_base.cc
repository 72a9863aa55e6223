#include "services/worker/executor/startup/loaded_base.h"

#include <algorithm>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "libs/common/logging/logging.h"
#include "libs/common/memory/process_memory.h"
#include "libs/common/status_macros.h"
#include "libs/common/version.h"
#include "services/worker/checkpoint/atomic_directory.h"
#include "services/worker/collectives/agreement.h"
#include "services/worker/executor/planning/step_rate.h"
#include "services/worker/executor/startup/machine_arithmetic.h"
#include "services/worker/sampling/cache/kv_cache.h"
#include "services/worker/sampling/sampling_engine.h"
#include "services/worker/torch/aten.h"
#include "services/worker/torch/torch_guard.h"
#include "services/worker/training/trainer.h"

namespace lathe::worker {
namespace {

ModelInfo Describe(const ExecutorOptions& options, const DecoderSpec& spec,
                   const std::string& content_hash) {
  ModelInfo info;
  info.name = options.model_name;
  info.content_hash = content_hash;
  info.arch = spec.family;
  info.max_context_length = spec.max_position_embeddings;
  info.vocab_size = spec.vocab_size;
  info.tokenizer_id = options.tokenizer_id;
  info.eos_token_ids = spec.eos_token_ids;
  info.lora_modules = AdaptableModules(*spec.linears);
  info.tied_embeddings = spec.tie_word_embeddings;
  return info;
}

// Time by which a layer step of training, or a chunk of prompts, may delay samples that decode.
absl::Duration StepDuration(at::Device device) {
  return device.is_cpu() ? absl::Milliseconds(100) : absl::Milliseconds(20);
}

absl::StatusOr<int64_t> AvailableBytes(const ExecutorOptions& options, at::Device device) {
  if (device.is_cpu()) {
    ASSIGN_OR_RETURN(const int64_t available, AvailableMemoryBytes());
    const int64_t limit = options.host_memory_bytes;
    return limit > 0 ? std::min(available, limit) : available;
  }
  return static_cast<int64_t>(
      c10::getDeviceAllocator(device.type())->getMemoryInfo(device.index()).first);
}

absl::StatusOr<MemoryPlan> PlanAround(const Model& model, const ExecutorOptions& options,
                                      int64_t available_bytes, absl::Duration layer_row,
                                      bool gathers_weights) {
  ASSIGN_OR_RETURN(
      const MemoryPlan plan,
      PlanMemory(model.part().local,
                 {.available_bytes = available_bytes,
                  .fraction = options.memory_fraction,
                  .weight_bytes = model.WeightBytes(),
                  .compute = PassComputeOf(model),
                  .kv_element_bytes = KvCache::ElementBytes(model.attention_arithmetic()),
                  .tokens_per_step = TokensPerStep(layer_row, StepDuration(model.device())),
                  .gathers_weights = gathers_weights,
                  .trains = options.role != "sample",
                  .samples = options.role != "train"}));
  LogInfo("memory planned", {{"available_bytes", available_bytes},
                             {"fraction", options.memory_fraction},
                             {"role", options.role},
                             {"weight_bytes", plan.weight_bytes},
                             {"adapter_bytes", plan.adapter_bytes},
                             {"save_bytes", plan.save_bytes + plan.host_save_bytes},
                             {"kv_cache_bytes", plan.kv_cache_bytes},
                             {"sampling_bytes", plan.sampling_bytes},
                             {"arena_bytes", plan.arena_bytes},
                             {"token_budget", plan.token_budget},
                             {"checkpointed_layers", plan.num_checkpointed},
                             {"head_chunk_elements", plan.head_chunk_elements}});
  return plan;
}

// Ranks on one machine share its host memory, but not their GPUs' memory. All ranks plan with the
// smallest share.
int64_t ShareOfAvailable(const RankGroup& ranks, at::Device device, int64_t own_bytes) {
  const int64_t num_sharing = device.is_cpu() ? NumRanksHere(ranks, "machine") : 1;
  return AgreeOnLeast(ranks, "available memory", own_bytes / num_sharing);
}

// Checks properties that each rank finds for itself: each has read its own folder, and hosts may
// have different processors. Data ranks with different arithmetic would train different models, and
// nothing else would detect it.
absl::Status CheckSame(const RankGroup& ranks, const LoadedModel& loaded) {
  const bool is_cpu = loaded.model->device().is_cpu();
  const bool is_bf16 = loaded.model->attention_arithmetic() == MatmulArithmetic::kBf16;
  const std::pair<const char*, std::string> found[] = {
      {"content hash of the base model", loaded.content_hash},
      {"arithmetic of products", is_bf16 ? "bf16" : "fp32"},
      {"instructions", is_cpu ? CpuArithmetic() : "of a GPU"}};
  for (const auto& [what, own] : found) {
    const std::vector<std::string> values = GatherTexts(ranks, what, own, at::kCPU);
    for (size_t rank = 1; rank < values.size(); ++rank) {
      if (values[rank] == values[0]) continue;
      return absl::FailedPreconditionError(absl::StrFormat("%s: rank %d has %s, rank 0 has %s",
                                                           what, rank, values[rank], values[0]));
    }
  }
  return absl::OkStatus();
}

// Returns why torch has no GPU. CUDA itself says so when it is asked for one, for example that the
// driver is too old.
std::string WhyNoGpu() {
  if (!c10::impl::hasDeviceGuardImpl(at::kCUDA)) return "this is a build without CUDA";
  try {
    c10::impl::VirtualGuardImpl(at::kCUDA).setDevice(at::Device(at::kCUDA, 0));
  } catch (const std::exception& error) {
    return MessageOf(error);
  }
  return "none is visible";
}

std::optional<Tokenizer> LoadTokenizer(const std::filesystem::path& folder) {
  absl::StatusOr<Tokenizer> tokenizer = Tokenizer::Load(folder);
  if (tokenizer.ok()) return *std::move(tokenizer);
  LogWarn("no tokenizer: stop strings are refused", {{"error", tokenizer.status().message()}});
  return std::nullopt;
}

// Special tokens may lie beyond the vocabulary: Gemma's tokenizer has one for images, which models
// without vision lack.
absl::Status CheckVocabulary(const std::optional<Tokenizer>& tokenizer, int64_t vocab_size) {
  if (!tokenizer.has_value() || tokenizer->num_text_ids() <= vocab_size) return absl::OkStatus();
  const int64_t last = tokenizer->num_text_ids() - 1;
  return absl::InvalidArgumentError(
      absl::StrFormat("tokenizer.json has token %d (\"%s\"), config.json: vocab_size is %d", last,
                      tokenizer->TokenBytes(last), vocab_size));
}

}  // namespace

absl::StatusOr<at::Device> ChooseDevice(const std::string& name) {
  if (name == "cpu") return at::Device(at::kCPU);
  if (name != "auto" && name != "cuda") {
    return absl::InvalidArgumentError(absl::StrCat("device is ", name, ", want auto, cpu or cuda"));
  }
  if (at::hasCUDA()) return at::Device(at::kCUDA, 0);
  const std::string why = WhyNoGpu();
  if (name == "cuda") {
    return absl::InvalidArgumentError(absl::StrCat("device is cuda, and there is no GPU: ", why));
  }
  LogInfo("there is no GPU, the CPU computes", {{"why", why}});
  return at::Device(at::kCPU);
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

std::map<std::string, std::string> MustAgree(const ExecutorOptions& options, at::Device device) {
  // On a CPU, the number of threads determines the sizes of passes.
  const int num_threads = device.is_cpu() ? at::get_num_threads() : 0;
  return {{"version", std::string(kVersion)},
          {"base model", options.model_name},
          {"device", device.is_cpu() ? "cpu" : "cuda"},
          {"compute dtype", options.compute_dtype},
          {"numerics", options.numerics},
          {"threads", absl::StrCat(num_threads)},
          {"memory fraction", absl::StrCat(options.memory_fraction)},
          {"role", options.role},
          {"prefill stall", absl::FormatDuration(options.prefill_stall)},
          {"prefix cache", options.prefix_cache ? "on" : "off"},
          {"version bytes", absl::StrCat(options.version_bytes)},
          {"decode graphs", options.decode_graphs ? "on" : "off"},
          {"non-finite gradients", absl::StrCat(static_cast<int>(options.nonfinite_gradients))}};
}

absl::StatusOr<LoadedBase> LoadBase(const ExecutorOptions& options, at::Device device,
                                    const LoadProgress& progress, const RankGroup& control,
                                    const RankGroups& groups) {
  ASSIGN_OR_RETURN(const ComputeDtype compute_dtype, ParseComputeDtype(options.compute_dtype));
  ASSIGN_OR_RETURN(const Numerics numerics, ParseNumerics(options.numerics));
  ASSIGN_OR_RETURN(const int64_t own_bytes,
                   OnAllRanks(control, "reading of the device's memory",
                              [&] { return AvailableBytes(options, device); }));
  const int64_t available_bytes = ShareOfAvailable(control, device, own_bytes);
  ASSIGN_OR_RETURN(LoadedModel loaded, OnAllRanks(control, "load of the base model", [&] {
                     return LoadModel(options.model_path, device, progress, compute_dtype,
                                      groups.tp, groups.fsdp);
                   }));
  RETURN_IF_ERROR(CheckSame(control, loaded));
  if (numerics == Numerics::kExact) {
    RETURN_IF_ERROR(OnAllRanks(control, "probe of exact numerics",
                               [&] { return ProbeExactNumerics(*loaded.model); }));
  }
  ASSIGN_OR_RETURN(
      const absl::Duration own_layer_row,
      OnAllRanks(control, "measurement of a layer", [&]() -> absl::StatusOr<absl::Duration> {
        return MeasureLayerRow(*loaded.model);
      }));
  const absl::Duration layer_row = absl::Nanoseconds(
      TakeFirst(control, "time of a layer", absl::ToInt64Nanoseconds(own_layer_row)));
  ASSIGN_OR_RETURN(const MemoryPlan memory, OnAllRanks(control, "plan of the memory", [&] {
                     return PlanAround(*loaded.model, options, available_bytes, layer_row,
                                       !groups.fsdp.is_alone());
                   }));
  LoadedBase base;
  // Rank 0 sweeps for all ranks, before any of them writes.
  RETURN_IF_ERROR(OnAllRanks(control, "sweep of unfinished saves", [&]() -> absl::Status {
    if (control.rank() != 0) return absl::OkStatus();
    return SweepAttempts(options.checkpoint_root, absl::Now());
  }));
  base.memory = memory;
  base.prefill_chunk_tokens = PrefillTokens(
      layer_row, loaded.model->spec().num_layers(),
      options.prefill_stall > absl::ZeroDuration() ? options.prefill_stall : StepDuration(device));
  LogInfo("prefill planned", {{"chunk_tokens", base.prefill_chunk_tokens}});
  base.numerics = numerics;
  base.info = Describe(options, loaded.model->spec(), loaded.content_hash);
  base.info.token_budget = memory.token_budget;
  base.info.kv_cache_tokens = KvCache::CapacityTokens(
      loaded.model->part().local, memory.kv_cache_bytes, loaded.model->attention_arithmetic());
  base.info.max_running_samples = options.mesh.dp * SamplingOptions().max_running_samples;
  base.store = std::make_unique<CheckpointStore>(options.checkpoint_root, loaded.model->part(),
                                                 options.model_name, loaded.content_hash,
                                                 options.storage.cache);
  base.tokenizer = LoadTokenizer(options.model_path);
  RETURN_IF_ERROR(OnAllRanks(control, "tokenizer", [&] {
    return CheckVocabulary(base.tokenizer, loaded.model->spec().vocab_size);
  }));
  if (AgreeOnLeast(control, "tokenizer", base.tokenizer.has_value() ? 1 : 0) == 0) {
    base.tokenizer.reset();
  }
  base.model = std::move(loaded.model);
  return base;
}

}  // namespace lathe::worker
