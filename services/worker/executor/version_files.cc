#include "services/worker/executor/version_files.h"

#include "absl/time/clock.h"
#include "libs/common/status_macros.h"
#include "services/worker/lora/adapter_layout.h"
#include "services/worker/torch_guard.h"

namespace lathe::worker {

absl::StatusOr<std::shared_ptr<const AdapterWeights>> ReadSpilledWeights(
    const SpilledWeights& spilled, const ModelPart& model) {
  const at::Tensor flat = at::empty({NumAdapterParameters(model, spilled.lora)}, at::kFloat);
  RETURN_IF_ERROR(spilled.extent->Read(flat.data_ptr()));
  return MakeAdapterWeights(flat, model, spilled.lora);
}

VersionFiles::VersionFiles(const CheckpointStore& store, at::Device device)
    : store_(store), device_(device), spill_file_(store.root() / "tmp") {}

VersionJobDone VersionFiles::Run(const VersionJob& job) {
  const absl::Time began = absl::Now();
  Result result = Guarded("load of a sampler version", [&] {
    return std::visit([this](const auto& work) { return Do(work); }, job.work);
  });
  return {.generation = job.generation,
          .ticket = job.ticket,
          .version_id = job.version_id,
          .is_spill = std::holds_alternative<SpillWeights>(job.work),
          .result = std::move(result),
          .spent = absl::Now() - began};
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

VersionFiles::Result VersionFiles::Do(const SpillWeights& work) {
  const at::Tensor flat = work.weights->tensors.flat.to(at::kCPU);
  ASSIGN_OR_RETURN(auto extent,
                   spill_file_.Write(flat.data_ptr(), static_cast<int64_t>(flat.nbytes())));
  return SpilledWeights{.lora = work.weights->lora, .extent = std::move(extent)};
}

}  // namespace lathe::worker
