#include "services/worker/executor/model_ops.h"

#include <algorithm>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "libs/common/errors.h"
#include "libs/common/fail_point/fail_point.h"
#include "libs/common/logging/logging.h"
#include "libs/common/status_macros.h"
#include "services/worker/collectives/agreement.h"
#include "services/worker/collectives/slow_agreement.h"
#include "services/worker/lora/adapter_gather.h"
#include "services/worker/lora/adapter_layout.h"
#include "services/worker/torch/torch_guard.h"
#include "services/worker/training/adamw.h"

namespace lathe::worker {
namespace {

// Returns an empty id if an error of the barrier answers no request.
std::string RequestIdOf(const ModelLanes::Barrier& barrier) {
  return std::visit(
      [](const auto& command) -> std::string {
        using Command = std::decay_t<decltype(command)>;
        if constexpr (std::is_same_v<Command, ClearGradient> || std::is_same_v<Command, Snapshot>) {
          return {};
        } else {
          return command.request_id;
        }
      },
      barrier);
}

void WarnIfNonFinite(const OptimStep& command,
                     const absl::StatusOr<std::vector<NamedMetric>>& metrics) {
  const bool warns =
      !metrics.ok() || std::any_of(metrics->begin(), metrics->end(), [](const NamedMetric& metric) {
        return metric.name == "nonfinite_gradients" && metric.value != 0;
      });
  if (!warns) return;
  LogWarn("optim_step got a gradient that is not finite",
          {{"model_id", command.model_id}, {"seq_id", command.seq_id}, {"failed", !metrics.ok()}});
}

int64_t BytesOfSave(const SaveCheckpoint& command, const Adapter& adapter) {
  return SnapshotStaging::NumSaveBytes(adapter.sizes(), command.kind == CheckpointKind::kTraining);
}

// Weights, two moments, the accumulator, and the weights of a version that samples hold.
constexpr int64_t kBytesPerParameter = 5 * sizeof(float);
constexpr double kBytesPerGib = 1 << 30;

}  // namespace

std::optional<ModelState> StateOf(const AdapterPool& adapters, const std::string& model_id) {
  const std::shared_ptr<Adapter> adapter = adapters.Find(model_id);
  if (adapter == nullptr) return std::nullopt;
  return ModelState{
      model_id, adapter->applied_seq, {adapter->window.begin(), adapter->window.end()}};
}

ModelOps::ModelOps(const Model& model, CheckpointStore& store, CheckpointWriter& writer,
                   RecoveryJobs& recovery_jobs, AdapterPool& adapters, VersionTable& versions,
                   int64_t generation, const ModelOpsOptions& options)
    : model_(model),
      store_(store),
      writer_(writer),
      recovery_jobs_(recovery_jobs),
      adapters_(adapters),
      versions_(versions),
      generation_(generation),
      options_(options) {}

// With several ranks, an exception may have left the other ranks in a collective, and would
// mismatch it with the next one. So the group must end.
template <typename Command>
ModelOps::Outcome ModelOps::DoGuarded(const Command& command) {
  if (options_.ranks.all.is_alone()) return Guarded("operation", [&] { return Do(command); });
  try {
    return Do(command);
  } catch (const std::exception& error) {
    throw RanksDisagree{StatusOfException("operation", error)};
  }
}

std::optional<Report> ModelOps::Run(const ModelLanes::Barrier& barrier) {
  Outcome outcome = std::visit([this](const auto& command) { return DoGuarded(command); }, barrier);
  if (const auto* snapshot = std::get_if<Snapshot>(&barrier); snapshot && !outcome.ok()) {
    return SnapshotDone{.snapshot_id = snapshot->snapshot_id,
                        .state = {.model_id = snapshot->model_id},
                        .status = std::move(outcome).status()};
  }
  std::string request_id = RequestIdOf(barrier);
  if (request_id.empty()) return std::nullopt;
  if (!outcome.ok()) return OpFailed{std::move(request_id), std::move(outcome).status()};
  return *std::move(outcome);
}

absl::StatusOr<std::shared_ptr<Adapter>> ModelOps::Find(const std::string& model_id) const {
  std::shared_ptr<Adapter> adapter = adapters_.Find(model_id);
  if (adapter != nullptr) return adapter;
  return absl::NotFoundError(absl::StrCat("model ", model_id, " is not on this worker"));
}

int64_t ModelOps::ModelBytes(const std::string& except_id) const {
  int64_t bytes = 0;
  for (const auto& [model_id, adapter] : adapters_.adapters()) {
    if (model_id != except_id) bytes += kBytesPerParameter * adapter->num_parameters();
  }
  return bytes;
}

AdamParams ModelOps::LastAdam(const std::string& model_id) const {
  const auto it = last_adam_.find(model_id);
  return it == last_adam_.end() ? AdamParams() : it->second;
}

int64_t ModelOps::StagingBytes(const std::string& except_id) const {
  if (!model_.device().is_cpu()) return 0;
  int64_t most = 0;
  for (const auto& [model_id, adapter] : adapters_.adapters()) {
    if (model_id == except_id) continue;
    most = std::max(most, SnapshotStaging::NumBytes(adapter->sizes(), options_.ranks.data.world()));
  }
  return most;
}

int64_t ModelOps::LargeSaveBytes(const AdapterSizes& sizes) const {
  if (!model_.device().is_cpu()) return 0;
  const int64_t bytes = SnapshotStaging::NumSaveBytes(sizes, /*has_moments=*/true);
  return std::max<int64_t>(0, bytes - options_.save_bytes);
}

int64_t ModelOps::LargeSaveBytes(const std::string& except_id) const {
  int64_t most = 0;
  for (const auto& [model_id, adapter] : adapters_.adapters()) {
    if (model_id != except_id) most = std::max(most, LargeSaveBytes(adapter->sizes()));
  }
  return most;
}

int64_t ModelOps::SaveBytes() const {
  const bool has_them = options_.ranks.all.rank() == 0 && model_.device().is_cpu();
  return has_them ? writer_.staged_bytes() : 0;
}

int64_t ModelOps::MaxStagingBuffers() const {
  const int64_t used = versions_.NumStayingBytes() + ModelBytes("") + LargeSaveBytes("");
  return used <= options_.adapter_bytes - 2 * StagingBytes("") ? 2 : 1;
}

int64_t ModelOps::VersionBytes() const {
  const int64_t used = ModelBytes("") + MaxStagingBuffers() * StagingBytes("") + LargeSaveBytes("");
  return std::clamp<int64_t>(options_.adapter_bytes - used, 0, options_.version_bytes);
}

absl::Status ModelOps::CheckRoom(const std::string& model_id, const AdapterSizes& sizes,
                                 RoomFor room_for) const {
  const int64_t num_parameters = sizes.total();
  const int64_t own_staging = SnapshotStaging::NumBytes(sizes, options_.ranks.data.world());
  const int64_t staging =
      std::max(StagingBytes(model_id), model_.device().is_cpu() ? own_staging : 0);
  const int64_t saves =
      room_for == RoomFor::kAdapter ? 0 : std::max(LargeSaveBytes(model_id), LargeSaveBytes(sizes));
  const int64_t used = versions_.NumStayingBytes() + ModelBytes(model_id) + staging + saves;
  const int64_t needed = kBytesPerParameter * num_parameters;
  const int64_t free = options_.adapter_bytes - used;
  if (needed <= free) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrFormat(
      "an adapter of %d parameters takes %.2f GiB, %.2f of the %.2f GiB for adapters are free",
      num_parameters, static_cast<double>(needed) / kBytesPerGib,
      static_cast<double>(std::max<int64_t>(0, free)) / kBytesPerGib,
      static_cast<double>(options_.adapter_bytes) / kBytesPerGib));
}

ModelOps::Outcome ModelOps::Do(const CreateAdapter& command) {
  RETURN_IF_ERROR(CheckRoom(command.model_id, SizesOfAdapter(model_.part(), command.lora),
                            RoomFor::kAdapterAndSaves));
  adapters_.Put(command.model_id,
                std::make_shared<Adapter>(model_.part(), command.lora, model_.device()));
  return OpDone{.request_id = command.request_id, .lora = command.lora, .version_bytes = 0};
}

absl::StatusOr<std::optional<CheckpointCache::Pin>> ModelOps::FetchOnAllRanks(
    const std::string& dir) {
  std::optional<CheckpointCache::Pin> pin;
  CheckpointCache* const cache = store_.cache();
  if (cache == nullptr || options_.ranks.all.is_alone()) return std::nullopt;
  const SlowWork work{.run = [&]() -> absl::Status {
                        ASSIGN_OR_RETURN(pin, store_.Fetch(dir));
                        return absl::OkStatus();
                      },
                      .cancel = [&] { cache->objects().Cancel(); },
                      .progress = &cache->progress()};
  RETURN_IF_ERROR(WaitForAllRanks(options_.ranks.all, "fetch of a checkpoint", work));
  return pin;
}

ModelOps::Outcome ModelOps::Do(const LoadAdapter& command) {
  ASSIGN_OR_RETURN(const std::optional<CheckpointCache::Pin> copy, FetchOnAllRanks(command.dir));
  ASSIGN_OR_RETURN(LoadedAdapter loaded, OnAllRanks(options_.ranks.all, "load of a model", [&] {
                     return store_.Load(command.dir, command.with_optimizer, model_.device());
                   }));
  RETURN_IF_ERROR(CheckRoom(command.model_id, loaded.adapter->sizes(), RoomFor::kAdapterAndSaves));
  loaded.adapter->applied_seq = command.seq_id;
  const LoraSpec lora = loaded.adapter->lora();
  last_adam_.erase(command.model_id);
  if (loaded.manifest.optimizer.has_value()) {
    last_adam_[command.model_id] = loaded.manifest.optimizer->last_adam;
  }
  adapters_.Put(command.model_id, std::move(loaded.adapter));
  return OpDone{.request_id = command.request_id, .lora = lora, .version_bytes = 0};
}

ModelOps::Outcome ModelOps::Do(const RestoreAdapter& command) {
  const RankGroup& data = options_.ranks.data;
  ASSIGN_OR_RETURN(const std::optional<CheckpointCache::Pin> copy, FetchOnAllRanks(command.dir));
  ASSIGN_OR_RETURN(LoadedAdapter restored,
                   OnAllRanks(options_.ranks.all, "restore of a model", [&] {
                     return store_.Restore(command.dir, command.model_id, model_.device(),
                                           {.index = data.rank(), .size = data.world()});
                   }));
  // The model existed before. It comes back even if its next save exceeds the plan for a while.
  RETURN_IF_ERROR(CheckRoom(command.model_id, restored.adapter->sizes(), RoomFor::kAdapter));
  const LoraSpec lora = restored.adapter->lora();
  last_adam_[command.model_id] = restored.manifest.optimizer->last_adam;
  adapters_.Put(command.model_id, std::move(restored.adapter));
  FailPoint("worker.restore.done");
  return OpDone{.request_id = command.request_id, .lora = lora, .version_bytes = 0};
}

ModelOps::Outcome ModelOps::Do(const DropAdapter& command) {
  adapters_.Drop(command.model_id);
  last_adam_.erase(command.model_id);
  return OpDone{.request_id = command.request_id, .lora = {}, .version_bytes = 0};
}

// Applies a step exactly once: the engine sends the state it expects, and a step on any other state
// is refused.
ModelOps::Outcome ModelOps::Do(const OptimStep& command) {
  ASSIGN_OR_RETURN(const std::shared_ptr<Adapter> adapter, Find(command.model_id));
  const std::vector<int64_t> window(adapter->window.begin(), adapter->window.end());
  if (adapter->applied_seq != command.expected_applied_seq || window != command.window) {
    return WithDetail(
        absl::FailedPreconditionError(absl::StrFormat(
            "optim_step %d expects applied_seq %d and window [%s], worker holds %d and [%s]",
            command.seq_id, command.expected_applied_seq, absl::StrJoin(command.window, ", "),
            adapter->applied_seq, absl::StrJoin(window, ", "))),
        "state_differs");
  }
  AdamParams adam = command.adam;
  if (FailPointErrno("worker.step.before") == kFailPointSkip) adam.learning_rate = 0;
  absl::StatusOr<std::vector<NamedMetric>> metrics = ApplyAdamW(
      *adapter, adam, options_.nonfinite_gradients,
      {.groups = options_.ranks,
       .name = absl::StrFormat("model %s, optim_step %d", command.model_id, command.seq_id)});
  WarnIfNonFinite(command, metrics);
  RETURN_IF_ERROR(metrics.status());
  StepDone done{.request_id = command.request_id, .metrics = *std::move(metrics)};
  if (window.empty()) done.metrics.push_back({"no_gradient", 1});
  adapter->applied_seq = command.seq_id;
  last_adam_[command.model_id] = command.adam;
  FailPoint("worker.step.applied");
  return done;
}

ModelOps::Outcome ModelOps::Do(const ClearGradient& command) {
  ASSIGN_OR_RETURN(const std::shared_ptr<Adapter> adapter, Find(command.model_id));
  adapter->ClearGradient();
  return std::nullopt;
}

bool ModelOps::MayRun(const ModelLanes::Barrier& barrier) {
  const auto* save = std::get_if<SaveCheckpoint>(&barrier);
  if (save == nullptr) return true;
  const std::shared_ptr<Adapter> adapter = adapters_.Find(save->model_id);
  const auto place = waiting_saves_.find(save->model_id);
  const bool waits = place != waiting_saves_.end();
  const bool is_first = places_.empty() || (waits && place->second == *places_.begin());
  // A save without an adapter fails at once.
  const int64_t num_bytes = adapter == nullptr ? 0 : BytesOfSave(*save, *adapter);
  if (adapter == nullptr || (is_first && writer_.HasRoom(num_bytes, options_.save_bytes))) {
    if (waits) {
      places_.erase(place->second);
      waiting_saves_.erase(place);
    }
    return true;
  }
  if (!waits) {
    waiting_saves_[save->model_id] = next_place_;
    places_.insert(next_place_++);
    LogInfo("a save waits until others are written", {{"model_id", save->model_id},
                                                      {"bytes", num_bytes},
                                                      {"staged_bytes", writer_.staged_bytes()},
                                                      {"save_bytes", options_.save_bytes}});
  }
  return false;
}

ModelOps::Outcome ModelOps::Do(const SaveCheckpoint& command) {
  ASSIGN_OR_RETURN(const std::shared_ptr<Adapter> adapter, Find(command.model_id));
  std::optional<ModelSnapshot> staged =
      SnapshotStaging::StageSave(command.model_id, *adapter, LastAdam(command.model_id),
                                 options_.ranks, command.kind == CheckpointKind::kTraining);
  const int64_t num_bytes = BytesOfSave(command, *adapter);
  writer_.Add(num_bytes);
  if (!staged.has_value()) return std::nullopt;  // rank 0 writes the whole
  writer_.Enqueue({.generation = generation_,
                   .command = command,
                   .model = *std::move(staged),
                   .state = *StateOf(adapters_, command.model_id),
                   .num_bytes = num_bytes});
  return std::nullopt;
}

ModelOps::Outcome ModelOps::Do(const Snapshot& command) {
  ASSIGN_OR_RETURN(const std::shared_ptr<Adapter> adapter, Find(command.model_id));
  if (!staging_.HasFree(MaxStagingBuffers())) {
    waiting_snapshots_.push_back(command);
    return std::nullopt;
  }
  StagedModel staged =
      staging_.Stage(command.model_id, *adapter, LastAdam(command.model_id), options_.ranks);
  at::Tensor buffer = staged.buffer;
  const absl::Status enqueued = recovery_jobs_.Enqueue(
      {.generation = generation_, .work = WriteSnapshot{command, std::move(staged)}});
  if (enqueued.ok()) return std::nullopt;
  GiveBack(std::move(buffer));
  return enqueued;
}

std::optional<Snapshot> ModelOps::NextSnapshot() {
  if (waiting_snapshots_.empty() || !staging_.HasFree(MaxStagingBuffers())) return std::nullopt;
  Snapshot next = std::move(waiting_snapshots_.front());
  waiting_snapshots_.pop_front();
  return next;
}

WriteVersion ModelOps::StageVersion(WriteVersion work) const {
  const RankGroups& ranks = options_.ranks;
  work.is_of_another_rank = ranks.all.rank() != 0;
  if (!SavesFromMemory() || ranks.data.rank() != 0) return work;
  auto& weights = std::get<std::shared_ptr<const AdapterWeights>>(work.weights);
  weights = GatherWeights(std::move(weights), model_.part(), ranks.tp);
  return work;
}

std::optional<ServedVersion> ModelOps::ServedCopy(const SamplerVersion& version) const {
  const RankGroups& ranks = options_.ranks;
  if (ranks.data.rank() != 0) return std::nullopt;
  const auto weights = GatherWeights(version.weights, model_.part(), ranks.tp);
  if (weights == nullptr) return std::nullopt;
  // Shares the memory where possible. Holds the weights and not only their memory, because a step
  // overwrites weights that nothing holds.
  struct Held {
    std::shared_ptr<const AdapterWeights> weights;
    at::Tensor flat;
  };
  auto held = std::make_shared<const Held>(
      Held{.weights = weights, .flat = weights->tensors.flat.to(at::kCPU, at::kFloat)});
  ServedVersion served{.header = {.base_content_hash = store_.base_content_hash(),
                                  .lora = weights->lora,
                                  .num_bytes = static_cast<int64_t>(held->flat.nbytes()),
                                  .model_id = version.publication.model_id,
                                  .seq_id = version.publication.seq_id,
                                  .applied_seq = version.publication.applied_seq},
                       .data = held->flat.const_data_ptr()};
  served.holder = std::move(held);
  return served;
}

ModelOps::Outcome ModelOps::Do(const PublishVersion& command) {
  ASSIGN_OR_RETURN(const std::shared_ptr<Adapter> adapter, Find(command.model_id));
  std::shared_ptr<const AdapterWeights> weights = adapter->Publish();
  const int64_t bytes = weights->num_bytes();
  versions_.Put(command.version_id, {.weights = std::move(weights),
                                     .inflight_seq = command.is_inflight ? command.seq_id : 0,
                                     .publication = {.model_id = command.model_id,
                                                     .seq_id = command.seq_id,
                                                     .applied_seq = adapter->applied_seq}});
  return OpDone{.request_id = command.request_id, .lora = adapter->lora(), .version_bytes = bytes};
}

}  // namespace lathe::worker
