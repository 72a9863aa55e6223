#include "services/worker/checkpoint/checkpoint_store.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libs/common/fail_point/fail_point.h"
#include "libs/common/status_macros.h"
#include "services/worker/checkpoint/atomic_directory.h"
#include "services/worker/checkpoint/peft_export.h"
#include "services/worker/checkpoint/verified_tensors.h"
#include "services/worker/formats/safetensors/durable_file.h"
#include "services/worker/formats/safetensors/safetensors.h"
#include "services/worker/formats/safetensors/safetensors_writer.h"

namespace lathe::worker {
namespace {

constexpr char kOptimizerFile[] = "optimizer.safetensors";
constexpr char kCompleteFile[] = "checkpoint_complete";
constexpr char kEncryptedSuffix[] = ".age";
// Copies that are fetched before a checkpoint counts as damaged.
constexpr int kMaxCopies = 3;

std::string FileName(const char* name, const std::vector<AgeRecipient>& recipients) {
  return recipients.empty() ? name : absl::StrCat(name, kEncryptedSuffix);
}

// Returns the name of a matrix's part of a moment: "exp_avg" or "exp_avg_sq".
std::string PartName(const char* buffer, const AdapterMatrix& matrix) {
  return absl::StrFormat("%s.%s", buffer, matrix.name());
}

// Writes one safetensors file and adds it and its tensors to the manifest.
absl::Status AddTensors(const std::filesystem::path& dir, const std::string& file_name,
                        const std::vector<NamedTensor>& tensors,
                        const std::vector<AgeRecipient>& recipients, Manifest& manifest) {
  ASSIGN_OR_RETURN(SafetensorsDigest digest,
                   WriteSafetensors(dir / file_name, tensors, {{"format", "pt"}}, recipients));
  manifest.files.push_back({file_name, digest.size_bytes, std::move(digest.sha256)});
  if (!recipients.empty()) return absl::OkStatus();
  for (size_t i = 0; i < tensors.size(); ++i) {
    manifest.tensors.push_back({.file = file_name,
                                .name = tensors[i].name,
                                .dtype = SafetensorsDtypeName(tensors[i].tensor.scalar_type()),
                                .shape = tensors[i].tensor.sizes().vec(),
                                .sha256 = std::move(digest.tensors[i])});
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

CheckpointStore::CheckpointStore(std::filesystem::path root, ModelPart model,
                                 std::string base_model, std::string base_content_hash,
                                 std::shared_ptr<CheckpointCache> cache)
    : root_(std::filesystem::absolute(root).lexically_normal()),
      model_(std::move(model)),
      base_model_(std::move(base_model)),
      base_content_hash_(std::move(base_content_hash)),
      cache_(std::move(cache)) {}

absl::StatusOr<std::filesystem::path> CheckpointStore::Resolve(const std::string& dir) const {
  const std::filesystem::path path = (root_ / dir).lexically_normal();
  const std::filesystem::path relative = path.lexically_relative(root_);
  if (relative.empty() || relative == "." || *relative.begin() == "..") {
    return absl::InvalidArgumentError(
        absl::StrFormat("dir is %s, checkpoints lie below %s", dir, root_.string()));
  }
  return path;
}

template <typename Read>
std::invoke_result_t<Read, const std::filesystem::path&> CheckpointStore::WithFiles(
    const std::string& dir, const Read& read) const {
  ASSIGN_OR_RETURN(const std::filesystem::path path, Resolve(dir));
  if (cache_ == nullptr) return read(path);
  for (int num_tries = 1;; ++num_tries) {
    ASSIGN_OR_RETURN(const CheckpointCache::Pin pin, cache_->Open(dir));
    auto result = read(pin.path());
    const absl::Status status = result.status();
    if (!absl::IsDataLoss(status) && !absl::IsNotFound(status) && !absl::IsInternal(status)) {
      return result;
    }
    RETURN_IF_ERROR(cache_->Drop(pin));
    if (num_tries < kMaxCopies) continue;
    if (absl::IsDataLoss(status)) return status;
    // Another process dropped the copy, or this disk is bad. The store has the checkpoint.
    return absl::UnavailableError(status.message());
  }
}

absl::StatusOr<CheckpointCache::Pin> CheckpointStore::Fetch(const std::string& dir) const {
  RETURN_IF_ERROR(Resolve(dir).status());
  return cache_->Open(dir);
}

absl::StatusOr<SavedCheckpoint> CheckpointStore::SaveTraining(const std::string& dir,
                                                              const ModelSnapshot& model,
                                                              const std::string& extra_json) const {
  const OptimizerSummary optimizer = {.num_steps = model.num_steps, .last_adam = model.last_adam};
  return Save(dir,
              {.kind = CheckpointKind::kTraining,
               .model_id = model.model_id,
               .lora = model.weights->lora,
               .applied_seq = model.applied_seq,
               .optimizer = optimizer},
              {.weights = model.weights->tensors.flat,
               .exp_avg = model.exp_avg,
               .exp_avg_sq = model.exp_avg_sq},
              /*recipients=*/{}, extra_json);
}

absl::StatusOr<SavedCheckpoint> CheckpointStore::SaveSnapshot(const std::string& dir,
                                                              const ModelSnapshot& snapshot,
                                                              const std::string& extra_json) const {
  const OptimizerSummary optimizer = {.num_steps = snapshot.num_steps,
                                      .last_adam = snapshot.last_adam};
  return Save(dir,
              {.kind = CheckpointKind::kSnapshot,
               .model_id = snapshot.model_id,
               .lora = snapshot.weights->lora,
               .applied_seq = snapshot.applied_seq,
               .optimizer = optimizer,
               .window = snapshot.window},
              {.weights = snapshot.weights->tensors.flat,
               .exp_avg = snapshot.exp_avg,
               .exp_avg_sq = snapshot.exp_avg_sq,
               .gradient = snapshot.gradient,
               .num_data_ranks = snapshot.num_data_ranks},
              /*recipients=*/{}, extra_json);
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
              {.weights = weights.tensors.flat}, /*recipients=*/{}, extra_json);
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
              {.weights = weights.tensors.flat}, recipients, extra_json);
}

absl::StatusOr<SavedCheckpoint> CheckpointStore::Save(const std::string& dir, Manifest manifest,
                                                      const FlatTensors& tensors,
                                                      const std::vector<AgeRecipient>& recipients,
                                                      const std::string& extra_json) const {
  ASSIGN_OR_RETURN(const std::filesystem::path final_dir, Resolve(dir));
  manifest.base_model = base_model_;
  manifest.base_content_hash = base_content_hash_;
  const std::vector<AdapterMatrix> layout = AdapterLayout(WholeModel(model_.whole), manifest.lora);
  std::vector<NamedTensor> weights;
  std::vector<NamedTensor> moments;
  std::vector<NamedTensor> gradient;
  if (tensors.gradient.defined()) {
    gradient = NameShares(tensors.gradient, model_, manifest.lora, tensors.num_data_ranks);
  }
  for (const AdapterMatrix& matrix : layout) {
    weights.push_back({PeftName(matrix), matrix.Of(tensors.weights)});
    if (tensors.exp_avg.defined()) {
      moments.push_back({PartName("exp_avg", matrix), matrix.Of(tensors.exp_avg)});
      moments.push_back({PartName("exp_avg_sq", matrix), matrix.Of(tensors.exp_avg_sq)});
    }
  }

  ASSIGN_OR_RETURN(AtomicDirectory attempt, AtomicDirectory::Create(root_));
  RETURN_IF_ERROR(AddTensors(attempt.path(), FileName(kPeftWeightsFile, recipients), weights,
                             recipients, manifest));
  RETURN_IF_ERROR(AddText(attempt.path(), FileName(kPeftConfigFile, recipients),
                          PeftConfigJson(manifest.lora, layout, base_model_), recipients,
                          manifest));
  if (!moments.empty()) {
    RETURN_IF_ERROR(AddTensors(attempt.path(), kOptimizerFile, moments, recipients, manifest));
  }
  if (!gradient.empty()) {
    RETURN_IF_ERROR(AddTensors(attempt.path(), kGradientFile, gradient, recipients, manifest));
  }
  RETURN_IF_ERROR(AddText(attempt.path(), kCompleteFile, "", /*recipients=*/{}, manifest));
  ASSIGN_OR_RETURN(const std::string json, ManifestToJson(manifest, extra_json));
  if (const int error = FailPointErrno("worker.save.manifest")) {
    return absl::ErrnoToStatus(error, (attempt.path() / kManifestFile).string());
  }
  ASSIGN_OR_RETURN(FileDigest digest, WriteDurably(attempt.path() / kManifestFile, json));
  // Readers on other machines have the objects before the row names them. This machine keeps its
  // attempt as its copy.
  if (cache_ != nullptr) RETURN_IF_ERROR(cache_->uploads().Publish(dir, attempt.path()));
  RETURN_IF_ERROR(attempt.Commit(final_dir));
  if (cache_ != nullptr) cache_->Trim(dir);

  SavedCheckpoint saved{.size_bytes = digest.size_bytes,
                        .manifest_sha256 = std::move(digest.sha256)};
  for (const ManifestFile& file : manifest.files) saved.size_bytes += file.size_bytes;
  return saved;
}

absl::StatusOr<Manifest> CheckpointStore::ReadLoadable(const std::filesystem::path& dir) const {
  if (const int error = FailPointErrno("worker.load.checkpoint")) {
    return absl::ErrnoToStatus(error, dir.string());
  }
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
  return WithFiles(dir, [&](const std::filesystem::path& path) {
    return LoadFrom(path, with_optimizer, device);
  });
}

absl::StatusOr<LoadedAdapter> CheckpointStore::LoadFrom(const std::filesystem::path& path,
                                                        bool with_optimizer,
                                                        at::Device device) const {
  ASSIGN_OR_RETURN(Manifest manifest, ReadLoadable(path));
  if (manifest.kind == CheckpointKind::kSnapshot) {
    return absl::InvalidArgumentError("checkpoint is of kind snapshot, it is to be restored");
  }
  if (with_optimizer && !manifest.optimizer) {
    return absl::InvalidArgumentError("checkpoint is of kind sampler, it has no optimizer state");
  }
  return ReadAdapter(path, std::move(manifest), with_optimizer, device, DataPlace());
}

absl::StatusOr<LoadedAdapter> CheckpointStore::Restore(const std::string& dir,
                                                       const std::string& model_id,
                                                       at::Device device,
                                                       const DataPlace& place) const {
  return WithFiles(dir, [&](const std::filesystem::path& path) {
    return RestoreFrom(path, model_id, device, place);
  });
}

absl::StatusOr<LoadedAdapter> CheckpointStore::RestoreFrom(const std::filesystem::path& path,
                                                           const std::string& model_id,
                                                           at::Device device,
                                                           const DataPlace& place) const {
  ASSIGN_OR_RETURN(Manifest manifest, ReadLoadable(path));
  if (manifest.kind != CheckpointKind::kSnapshot || !manifest.optimizer) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s is no snapshot, nothing else can be restored", path.string()));
  }
  if (manifest.model_id != model_id) {
    return absl::DataLossError(absl::StrFormat("%s: model_id is %s, wanted is %s",
                                               (path / kManifestFile).string(), manifest.model_id,
                                               model_id));
  }
  ASSIGN_OR_RETURN(LoadedAdapter loaded,
                   ReadAdapter(path, std::move(manifest), /*with_optimizer=*/true, device, place));
  loaded.adapter->applied_seq = loaded.manifest.applied_seq;
  loaded.adapter->window = {loaded.manifest.window.begin(), loaded.manifest.window.end()};
  return loaded;
}

absl::StatusOr<LoadedAdapter> CheckpointStore::ReadAdapter(const std::filesystem::path& dir,
                                                           Manifest manifest, bool with_optimizer,
                                                           at::Device device,
                                                           const DataPlace& place) const {
  const at::Tensor weights = MakeFlat(model_, manifest.lora);
  at::Tensor exp_avg;
  at::Tensor exp_avg_sq;
  if (with_optimizer) {
    exp_avg = MakeFlat(model_, manifest.lora);
    exp_avg_sq = MakeFlat(model_, manifest.lora);
  }
  std::optional<SharesToRead> gradient;
  if (!manifest.window.empty()) gradient.emplace(manifest, model_, place);
  TensorPlaces places;
  for (const AdapterMatrix& matrix : AdapterLayout(model_, manifest.lora)) {
    places[{kPeftWeightsFile, PeftName(matrix)}] = PlaceOf(matrix, weights);
    if (!with_optimizer) continue;
    places[{kOptimizerFile, PartName("exp_avg", matrix)}] = PlaceOf(matrix, exp_avg);
    places[{kOptimizerFile, PartName("exp_avg_sq", matrix)}] = PlaceOf(matrix, exp_avg_sq);
  }
  if (gradient.has_value()) gradient->AddPlaces(places);
  RETURN_IF_ERROR(ReadVerifiedTensors(dir, manifest, Verify::kFiles, places));
  auto adapter = std::make_unique<Adapter>(model_, manifest.lora, weights.to(device));
  if (with_optimizer) {
    adapter->exp_avg = exp_avg.to(device);
    adapter->exp_avg_sq = exp_avg_sq.to(device);
    adapter->num_steps = manifest.optimizer->num_steps;
  }
  if (gradient.has_value()) adapter->gradient = gradient->Sum().to(device);
  return LoadedAdapter{.adapter = std::move(adapter), .manifest = std::move(manifest)};
}

absl::StatusOr<Manifest> CheckpointStore::Describe(const std::string& dir) const {
  return WithFiles(dir, ReadManifest);
}

absl::StatusOr<std::shared_ptr<const AdapterWeights>> CheckpointStore::LoadWeights(
    const std::string& dir, at::Device device) const {
  return WithFiles(
      dir, [&](const std::filesystem::path& path) { return LoadWeightsFrom(path, device); });
}

absl::StatusOr<std::shared_ptr<const AdapterWeights>> CheckpointStore::LoadWeightsFrom(
    const std::filesystem::path& path, at::Device device) const {
  ASSIGN_OR_RETURN(const Manifest manifest, ReadLoadable(path));
  const at::Tensor flat = MakeFlat(model_, manifest.lora);
  TensorPlaces places;
  for (const AdapterMatrix& matrix : AdapterLayout(model_, manifest.lora)) {
    places[{kPeftWeightsFile, PeftName(matrix)}] = PlaceOf(matrix, flat);
  }
  RETURN_IF_ERROR(ReadVerifiedTensors(path, manifest, Verify::kTensors, places));
  return MakeAdapterWeights(flat.to(device), model_, manifest.lora);
}

}  // namespace lathe::worker
