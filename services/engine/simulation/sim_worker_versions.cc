// Sampler versions between a worker, its disk and other workers.
#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "services/engine/simulation/sim_worker.h"

namespace lathe::engine::simulation {

void SimWorker::LoseVersion() {
  if (versions_.empty() || !is_attached_) return;
  auto it = versions_.begin();
  std::advance(it, world_.random.Below(static_cast<int64_t>(versions_.size())));
  if (!it->second.is_loaded) return;
  world_.trace.Log(world_.time.now(), [&] { return process_id_ + " loses " + it->first; });
  Report({.event = WorkerVersionFailed{group_, epoch_, it->first, {}}, .result = {}});
  versions_.erase(it);
}

void SimWorker::Handle(const SendLoadVersion& command, EngineMessage&) {
  const auto known = versions_.find(command.version_id);
  if (known != versions_.end() && known->second.seq_id >= command.inflight_seq_id) {
    if (known->second.is_loaded) ReportLoaded(command);
    return;
  }
  versions_[command.version_id] = {{}, false, command.inflight_seq_id};
  world_.time.After(world_.Delay(world_.swarm.max_work), [this, command, began = generation_] {
    const auto it = versions_.find(command.version_id);
    if (is_dead_ || began != generation_ || it == versions_.end()) return;
    if (it->second.is_loaded || it->second.seq_id != command.inflight_seq_id) return;
    std::optional<Weights> weights = WeightsFor(command);
    if (!weights) {
      versions_.erase(it);
      Report({.event = WorkerVersionFailed{group_, epoch_, command.version_id, {}}, .result = {}});
    } else {
      it->second = {*std::move(weights), true,
                    std::max(command.inflight_seq_id, command.source_seq_id)};
      ReportLoaded(command);
    }
    StartReady();
  });
}

void SimWorker::ReportLoaded(const SendLoadVersion& command) {
  Report({.event = WorkerVersionLoaded{group_, epoch_, command.version_id, command.inflight_seq_id},
          .result = {}});
}

std::optional<Weights> SimWorker::WeightsFor(const SendLoadVersion& command) const {
  if (!command.source_group.empty()) {
    const auto source = world_.sources.find(command.source_group);
    if (world_.random.Chance(world_.swarm.broken_read) && !world_.is_healed) return std::nullopt;
    if (source == world_.sources.end()) return std::nullopt;
    return source->second->Served(command.version_id, command.source_seq_id);
  }
  const CheckpointFiles* const files = world_.disk.Find(command.dir);
  return files == nullptr ? std::nullopt : std::optional(files->weights);
}

std::optional<Weights> SimWorker::Served(const std::string& version_id, int64_t seq_id) const {
  const auto version = versions_.find(version_id);
  const bool is_here = !is_dead_ && !is_hung() && version != versions_.end() &&
                       version->second.is_loaded && version->second.seq_id == seq_id;
  return is_here ? std::optional(version->second.weights) : std::nullopt;
}

void SimWorker::Handle(const SendDropVersion& command, EngineMessage&) {
  versions_.erase(command.version_id);
}

void SimWorker::Handle(const SendServeVersion& command, EngineMessage&) {
  WorkerVersionServed served;
  served.group = group_;
  served.epoch = epoch_;
  served.version_id = command.version_id;
  served.reader = command.reader;
  const auto version = versions_.find(command.version_id);
  if (version == versions_.end() || !version->second.is_loaded) {
    served.error = ErrorInfo{absl::StatusCode::kNotFound, "version_absent", "", "is not here"};
  } else {
    served.seq_id = version->second.seq_id;
  }
  Report({.event = served, .result = {}});
}

void SimWorker::Handle(const SendSaveVersion& command, EngineMessage&) {
  WorkerVersionSaved saved;
  saved.group = group_;
  saved.epoch = epoch_;
  saved.version_id = command.version_id;
  saved.dir = command.dir;
  const auto version = versions_.find(command.version_id);
  if (version == versions_.end() || !version->second.is_loaded) {
    saved.error = ErrorInfo{absl::StatusCode::kNotFound, "version_absent", "", "is not here"};
    return Report({.event = saved, .result = {}});
  }
  saved.seq_id = version->second.seq_id;
  saved.size_bytes = 100;
  saved.manifest_sha256 = "manifest of " + command.dir;
  CheckpointFiles files;
  files.weights = version->second.weights;
  WriteLater(command.dir, std::move(files),
             [this, saved] { Report({.event = saved, .result = {}}); });
}

}  // namespace lathe::engine::simulation
