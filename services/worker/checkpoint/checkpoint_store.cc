#include "services/worker/checkpoint/checkpoint_store.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libs/common/status_macros.h"
#include "services/worker/checkpoint/atomic_directory.h"
#include "services/worker/checkpoint/durable_file.h"
#include "services/worker/checkpoint/peft_export.h"
#include "services/worker/checkpoint/safetensors.h"
#include "services/worker/checkpoint/safetensors_writer.h"
#include "services/worker/checkpoint/verified_tensors.h"

namespace lathe::worker {
namespace {

constexpr char kOptimizerFile[] = "optimizer.safetensors";
constexpr char kCompleteFile[] = "checkpoint_complete";
constexpr char kEncryptedSuffix[] = ".age";

std::string FileName(const char* name, const std::vector<AgeRecipient>& recipients) {
  return recipients.empty() ? name : absl::StrCat(name, kEncryptedSuffix);
}

std::string MomentName(const char* moment, const AdapterMatrix& matrix) {
  return absl::StrFormat("%s.%s", moment, matrix.name());
}

// Writes one safetensors file and notes it and its tensors in the manifest.
absl::Status AddTensors(const std::filesystem::path& dir, const std::string& file_name,
                        const std::vector<NamedTensor>& tensors,
                        const std::vector<AgeRecipient>& recipients, Manifest& manifest) {
  ASSIGN_OR_RETURN(FileDigest digest,
                   WriteSafetensors(dir / file_name, tensors, {{"format", "pt"}}, recipients));
  manifest.files.push_back({file_name, digest.size_bytes, std::move(digest.sha256)});
  if (!recipients.empty()) return absl::OkStatus();
  for (const NamedTensor& named : tensors) {
    manifest.tensors.push_back({.file = file_name,
                                .name = named.name,
                                .dtype = SafetensorsDtypeName(named.tensor.scalar_type()),
                                .shape = named.tensor.sizes().vec(),
                                .sha256 = TensorSha256(named.tensor)});
  }
  return absl::OkStatus();
}

absl::Status AddText(const std::filesystem::path& dir, const std::string& file_name,
                     const std::string& text, const std::vector<AgeRecipient>& recipients,
                     Manifest& manifest) {
  ASSIGN_OR_RETURN(FileDigest digest, WriteDurably(dir / file_name, text, recipients));
  manifest.files.push_back({file_name, digest.size_bytes, std::move(digest.sha256)});
  return absl::OkStatus();
}

}  // namespace

CheckpointStore::CheckpointStore(std::filesystem::path root, ModelSpec model,
                                 std::string base_model, std::string base_content_hash)
    : root_(std::filesystem::absolute(root).lexically_normal()),
      model_(std::move(model)),
      base_model_(std::move(base_model)),
      base_content_hash_(std::move(base_content_hash)) {}

absl::StatusOr<std::filesystem::path> CheckpointStore::Resolve(const std::string& dir) const {
  const std::filesystem::path path = (root_ / dir).lexically_normal();
  const std::filesystem::path relative = path.lexically_relative(root_);
  if (relative.empty() || relative == "." || *relative.begin() == "..") {
    return absl::InvalidArgumentError(
        absl::StrFormat("dir is %s, checkpoints lie below %s", dir, root_.string()));
  }
  return path;
}

absl::StatusOr<SavedCheckpoint> CheckpointStore::SaveTraining(const std::string& dir,
                                                              const std::string& model_id,
                                                              const Adapter& adapter,
                                                              const AdamParams& last_adam,
                                                              const std::string& extra_json) const {
  const OptimizerSummary optimizer = {.num_steps = adapter.num_steps, .last_adam = last_adam};
  return Save(dir,
              {.kind = CheckpointKind::kTraining,
               .model_id = model_id,
               .lora = adapter.lora(),
               .applied_seq = adapter.applied_seq,
               .optimizer = optimizer},
              adapter.parameters(), &adapter, /*recipients=*/{}, extra_json);
}

absl::StatusOr<SavedCheckpoint> CheckpointStore::SaveSampler(const std::string& dir,
                                                             const std::string& model_id,
                                                             const AdapterWeights& weights,
                                                             int64_t applied_seq,
                                                             const std::string& extra_json) const {
  return Save(dir,
              {.kind = CheckpointKind::kSampler,
               .model_id = model_id,
               .lora = weights.lora,
               .applied_seq = applied_seq},
              weights.tensors.flat, nullptr, /*recipients=*/{}, extra_json);
}

absl::StatusOr<SavedCheckpoint> CheckpointStore::SaveExternal(
    const std::string& dir, const std::string& model_id, const AdapterWeights& weights,
    int64_t applied_seq, const std::vector<AgeRecipient>& recipients,
    const std::string& extra_json) const {
  return Save(dir,
              {.kind = CheckpointKind::kExternal,
               .model_id = model_id,
               .lora = weights.lora,
               .applied_seq = applied_seq},
              weights.tensors.flat, nullptr, recipients, extra_json);
}

absl::StatusOr<SavedCheckpoint> CheckpointStore::Save(const std::string& dir, Manifest manifest,
                                                      const at::Tensor& flat,
                                                      const Adapter* optimizer_state,
                                                      const std::vector<AgeRecipient>& recipients,
                                                      const std::string& extra_json) const {
  ASSIGN_OR_RETURN(const std::filesystem::path final_dir, Resolve(dir));
  manifest.base_model = base_model_;
  manifest.base_content_hash = base_content_hash_;
  const std::vector<AdapterMatrix> layout = AdapterLayout(model_, manifest.lora);
  std::vector<NamedTensor> weights;
  std::vector<NamedTensor> moments;
  for (const AdapterMatrix& matrix : layout) {
    weights.push_back({PeftName(matrix), matrix.Of(flat)});
    if (optimizer_state == nullptr) continue;
    moments.push_back({MomentName("exp_avg", matrix), matrix.Of(optimizer_state->exp_avg)});
    moments.push_back({MomentName("exp_avg_sq", matrix), matrix.Of(optimizer_state->exp_avg_sq)});
  }

  ASSIGN_OR_RETURN(AtomicDirectory attempt, AtomicDirectory::Create(root_));
  RETURN_IF_ERROR(AddTensors(attempt.path(), FileName(kPeftWeightsFile, recipients), weights,
                             recipients, manifest));
  RETURN_IF_ERROR(AddText(attempt.path(), FileName(kPeftConfigFile, recipients),
                          PeftConfigJson(manifest.lora, layout, base_model_), recipients,
                          manifest));
  if (optimizer_state != nullptr) {
    RETURN_IF_ERROR(AddTensors(attempt.path(), kOptimizerFile, moments, recipients, manifest));
  }
  RETURN_IF_ERROR(AddText(attempt.path(), kCompleteFile, "", /*recipients=*/{}, manifest));
  ASSIGN_OR_RETURN(const std::string json, ManifestToJson(manifest, extra_json));
  ASSIGN_OR_RETURN(FileDigest digest, WriteDurably(attempt.path() / kManifestFile, json));
  RETURN_IF_ERROR(attempt.Commit(final_dir));

  SavedCheckpoint saved{.size_bytes = digest.size_bytes,
                        .manifest_sha256 = std::move(digest.sha256)};
  for (const ManifestFile& file : manifest.files) saved.size_bytes += file.size_bytes;
  return saved;
}

absl::StatusOr<Manifest> CheckpointStore::ReadLoadable(const std::filesystem::path& dir) const {
  ASSIGN_OR_RETURN(Manifest manifest, ReadManifest(dir));
  if (manifest.base_content_hash != base_content_hash_) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "checkpoint is of base model %s with content hash %s, loaded is %s with %s",
        manifest.base_model, manifest.base_content_hash, base_model_, base_content_hash_));
  }
  if (manifest.kind == CheckpointKind::kExternal) {
    return absl::InvalidArgumentError("checkpoint is of kind external, it is for download only");
  }
  return manifest;
}

absl::StatusOr<LoadedAdapter> CheckpointStore::Load(const std::string& dir, bool with_optimizer,
                                                    at::Device device) const {
  ASSIGN_OR_RETURN(const std::filesystem::path path, Resolve(dir));
  ASSIGN_OR_RETURN(Manifest manifest, ReadLoadable(path));
  if (with_optimizer && !manifest.optimizer) {
    return absl::InvalidArgumentError("checkpoint is of kind sampler, it has no optimizer state");
  }
  const std::vector<AdapterMatrix> layout = AdapterLayout(model_, manifest.lora);
  const int64_t size = NumAdapterParameters(model_, manifest.lora);
  const at::Tensor weights = at::empty({size}, at::kFloat);
  const at::Tensor exp_avg = at::empty({with_optimizer ? size : 0}, at::kFloat);
  const at::Tensor exp_avg_sq = at::empty_like(exp_avg);
  TensorPlaces places;
  for (const AdapterMatrix& matrix : layout) {
    places[{kPeftWeightsFile, PeftName(matrix)}] = matrix.Of(weights);
    if (!with_optimizer) continue;
    places[{kOptimizerFile, MomentName("exp_avg", matrix)}] = matrix.Of(exp_avg);
    places[{kOptimizerFile, MomentName("exp_avg_sq", matrix)}] = matrix.Of(exp_avg_sq);
  }
  RETURN_IF_ERROR(ReadVerifiedTensors(path, manifest, Verify::kFiles, places));
  auto adapter = std::make_unique<Adapter>(model_, manifest.lora, weights.to(device));
  if (with_optimizer) {
    adapter->exp_avg = exp_avg.to(device);
    adapter->exp_avg_sq = exp_avg_sq.to(device);
    adapter->num_steps = manifest.optimizer->num_steps;
  }
  return LoadedAdapter{.adapter = std::move(adapter), .manifest = std::move(manifest)};
}

absl::StatusOr<std::shared_ptr<const AdapterWeights>> CheckpointStore::LoadWeights(
    const std::string& dir, at::Device device) const {
  ASSIGN_OR_RETURN(const std::filesystem::path path, Resolve(dir));
  ASSIGN_OR_RETURN(const Manifest manifest, ReadLoadable(path));
  const at::Tensor flat = at::empty({NumAdapterParameters(model_, manifest.lora)}, at::kFloat);
  TensorPlaces places;
  for (const AdapterMatrix& matrix : AdapterLayout(model_, manifest.lora)) {
    places[{kPeftWeightsFile, PeftName(matrix)}] = matrix.Of(flat);
  }
  RETURN_IF_ERROR(ReadVerifiedTensors(path, manifest, Verify::kTensors, places));
  return MakeAdapterWeights(flat.to(device), model_, manifest.lora);
}

}  // namespace lathe::worker
