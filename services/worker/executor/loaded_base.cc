#include "services/worker/executor/loaded_base.h"

#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "libs/common/logging/logging.h"
#include "libs/common/status_macros.h"
#include "services/worker/checkpoint/atomic_directory.h"
#include "services/worker/torch_guard.h"

namespace lathe::worker {
namespace {

// Another worker may be writing into the same store; nobody takes a day for one checkpoint.
constexpr absl::Duration kAbandonedAfter = absl::Hours(24);

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
  info.token_budget = options.token_budget;
  info.tied_embeddings = spec.tie_word_embeddings;
  return info;
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
  ASSIGN_OR_RETURN(LoadedModel loaded, Guarded("load of the base model", [&] {
                     return LoadModel(options.model_path, device, progress, compute_dtype);
                   }));
  RETURN_IF_ERROR(SweepAttempts(options.checkpoint_root, absl::Now() - kAbandonedAfter));
  LoadedBase base;
  base.info = Describe(options, loaded.model->spec(), loaded.content_hash);
  base.store = std::make_unique<CheckpointStore>(options.checkpoint_root, loaded.model->spec(),
                                                 options.model_name, loaded.content_hash);
  base.tokenizer = LoadTokenizer(options.model_path);
  base.model = std::move(loaded.model);
  return base;
}

}  // namespace lathe::worker
