#include "services/worker/executor/versions/version_files.h"
#include "services/worker/ops/reports.h"

#include "absl/strings/str_format.h"
#include "libs/common/status_macros.h"
#include "libs/common/time/clock.h"
#include "services/worker/lora/adapter_gather.h"
#include "services/worker/lora/adapter_layout.h"
#include "services/worker/torch/torch_guard.h"

namespace lathe::worker {

absl::StatusOr<std::shared_ptr<const AdapterWeights>> ReadSpilledWeights(
    const SpilledWeights& spilled, const ModelPart& model) {
  const at::Tensor flat = at::empty({NumAdapterParameters(model, spilled.lora)}, at::kFloat);
  RETURN_IF_ERROR(spilled.extent->Read(flat.data_ptr()));
  return MakeAdapterWeights(flat, model, spilled.lora);
}

VersionFiles::VersionFiles(const CheckpointStore& store, at::Device device, VersionReader* reader)
    : store_(store), device_(device), reader_(reader), spill_file_(store.root() / "tmp") {}

VersionJobDone VersionFiles::Run(const VersionJob& job) {
  const absl::Time began = SteadyNow();
  std::optional<Publication> publication;
  Result result = Guarded("load of a sampler version", [&]() -> Result {
    if (const auto* served = std::get_if<ReadServed>(&job.work)) {
      return Do(*served, job.version_id, publication);
    }
    if (const auto* spill = std::get_if<SpillWeights>(&job.work)) return Do(*spill);
    if (const auto* spilled = std::get_if<ReadSpilled>(&job.work)) return Do(*spilled);
    return Do(std::get<ReadCheckpoint>(job.work));
  });
  return {.generation = job.generation,
          .ticket = job.ticket,
          .version_id = job.version_id,
          .is_spill = std::holds_alternative<SpillWeights>(job.work),
          .publication = std::move(publication),
          .result = std::move(result),
          .spent = SteadyNow() - began};
}

VersionFiles::Result VersionFiles::Do(const ReadCheckpoint& work) {
  return store_.LoadWeights(work.dir, device_);
}

VersionFiles::Result VersionFiles::Do(const ReadSpilled& work) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const AdapterWeights> weights,
                   ReadSpilledWeights(work.spilled, store_.model()));
  if (device_.is_cpu()) return weights;
  return MakeAdapterWeights(weights->tensors.flat.to(device_), store_.model(), weights->lora);
}

absl::Status VersionFiles::CheckHeader(const VersionHeader& header) const {
  if (header.base_content_hash != store_.base_content_hash()) {
    return absl::FailedPreconditionError(
        absl::StrFormat("the sampler version is of a base model with content hash %s, loaded is %s",
                        header.base_content_hash, store_.base_content_hash()));
  }
  const int64_t max_rank = ModelInfo().max_lora_rank;
  if (header.lora.rank < 1 || header.lora.rank > max_rank) {
    return absl::DataLossError(absl::StrFormat("the sampler version's rank is %d, want 1 to %d",
                                               header.lora.rank, max_rank));
  }
  const int64_t wanted =
      int64_t{sizeof(float)} * NumAdapterParameters(WholeModel(store_.model().whole), header.lora);
  if (header.num_bytes == wanted) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrFormat("a sampler version of %d bytes, want %d of its rank %d", header.num_bytes,
                      wanted, header.lora.rank));
}

VersionFiles::Result VersionFiles::Do(const ReadServed& work, const std::string& version_id,
                                      std::optional<Publication>& publication) const {
  if (reader_ == nullptr) {
    return absl::UnimplementedError("this process reads no sampler versions of others");
  }
  at::Tensor whole;
  LoraSpec lora;
  Publication read;
  const auto begin = [&](const VersionHeader& header) -> absl::StatusOr<void*> {
    RETURN_IF_ERROR(CheckHeader(header));
    lora = header.lora;
    read = {header.model_id, header.seq_id, header.applied_seq};
    whole = at::empty({header.num_bytes / int64_t{sizeof(float)}}, at::kFloat);
    return whole.data_ptr();
  };
  RETURN_IF_ERROR(reader_->Read(work.source, version_id, work.seq_id, begin));
  publication = std::move(read);
  const at::Tensor flat = PartOfWhole(whole, store_.model(), lora);
  return MakeAdapterWeights(flat.to(device_), store_.model(), lora);
}

VersionFiles::Result VersionFiles::Do(const SpillWeights& work) {
  const at::Tensor flat = work.weights->tensors.flat.to(at::kCPU);
  ASSIGN_OR_RETURN(auto extent,
                   spill_file_.Write(flat.data_ptr(), static_cast<int64_t>(flat.nbytes())));
  return SpilledWeights{.lora = work.weights->lora, .extent = std::move(extent)};
}

}  // namespace lathe::worker
