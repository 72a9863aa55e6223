#include "services/engine/core/models/model_history.h"

#include <algorithm>
#include <utility>

#include "services/engine/core/models/models.h"
#include "services/engine/core/state/needed_files.h"
#include "services/engine/ledger/gradient_window.h"

namespace lathe::engine {
namespace {

constexpr size_t kSnapshotsKept = 2;

bool Lives(const Model& model) {
  return model.row.state == ModelState::kCreating || model.row.state == ModelState::kReady;
}

void Drop(State& s, const LogEntry& entry) {
  if (const auto* const gradient = std::get_if<LoggedGradient>(&entry)) {
    if (!gradient->body_id.empty()) s.fx.Put(DropBody{gradient->body_id});
  } else if (const auto* const load = std::get_if<LoggedLoad>(&entry)) {
    UnpinDir(s, load->dir);
  }
}

void DropOldestSnapshot(State& s, Model& model) {
  s.fx.Put(DeleteSnapshot{model.snapshots.front().snapshot_id});
  s.fx.After(DeleteFiles{model.snapshots.front().snapshot_id});
  model.snapshots.erase(model.snapshots.begin());
}

void DropCreation(State& s, Model& model) {
  if (!model.created_from) return;
  UnpinDir(s, model.created_from->dir);
  model.created_from.reset();
}

LoggedPublication PublicationOf(const RequestRow& row, const Plan& plan) {
  return {row.request_id, plan.version_id, std::get<SaveArgs>(plan.args).inflight};
}

}  // namespace

void KeepForReplay(State& s, Model& model, Request& request) {
  const RequestRow& row = request.row;
  const Plan& plan = *request.plan;
  if (row.op_class != OpClass::kTrain) return;
  switch (row.kind) {
    case OperationKind::kForwardBackward:
      model.log.Add(row.seq_id,
                    LoggedGradient{row.request_id, row.body_id, row.body_bytes, row.tokens});
      return;
    case OperationKind::kOptimStep: {
      LoggedStep step{row.request_id, std::get<OptimStepArgs>(plan.args).adam_params,
                      model.gradient.seqs(), model.gradient.applied_seq()};
      request.outcome = EncodeStepOutcome(step);
      model.log.Add(row.seq_id, std::move(step));
      return;
    }
    case OperationKind::kLoadWeights:
      request.outcome = plan.dir;
      PinDir(s, plan.dir);
      model.log.Add(row.seq_id, LoggedLoad{row.request_id, plan.dir,
                                           std::get<LoadArgs>(plan.args).with_optimizer});
      return;
    case OperationKind::kSaveWeightsForSampler:
      if (!plan.version_id.empty()) model.log.Add(row.seq_id, PublicationOf(row, plan));
      return;
    default:
      return;
  }
}

void RestoreForReplay(State& s, Model& model, const RequestRow& row, const Plan& plan) {
  if (!Lives(model)) return;
  // The plan of a refused request has no arguments.
  const auto* const create = std::get_if<CreateModelArgs>(&plan.args);
  if (create != nullptr && row.op_class == OpClass::kModel && !plan.refused) {
    model.created_as = create->lora;
    model.created_as->seed = plan.seed;
  }
  if (row.state != RequestState::kDone) return;
  if (row.op_class == OpClass::kModel) {
    const auto* const load = std::get_if<LoadArgs>(&plan.args);
    if (load != nullptr && model.row.log_from_seq == 0) {
      KeepCreation(s, model, {row.request_id, plan.dir, load->with_optimizer});
    }
    return;
  }
  if (row.op_class != OpClass::kTrain || row.seq_id <= model.row.log_from_seq) return;
  if (row.kind == OperationKind::kForwardBackward) {
    model.log.Add(row.seq_id,
                  LoggedGradient{row.request_id, row.body_id, row.body_bytes, row.tokens});
  } else if (row.kind == OperationKind::kOptimStep) {
    LoggedStep step{row.request_id, std::get<OptimStepArgs>(plan.args).adam_params, {}};
    DecodeStepOutcome(row.outcome, step);
    model.log.Add(row.seq_id, std::move(step));
  } else if (row.kind == OperationKind::kLoadWeights) {
    PinDir(s, row.outcome);
    model.log.Add(row.seq_id, LoggedLoad{row.request_id, row.outcome,
                                         std::get<LoadArgs>(plan.args).with_optimizer});
  } else if (row.kind == OperationKind::kSaveWeightsForSampler && !plan.version_id.empty()) {
    model.log.Add(row.seq_id, PublicationOf(row, plan));
  }
}

void KeepCreation(State& s, Model& model, LoggedLoad load) {
  PinDir(s, load.dir);
  model.created_from = std::move(load);
}

ModelPoint PointOf(const Model& model) {
  return {model.gradient.applied_seq(), model.gradient.seqs()};
}

ModelPoint PointOf(const SnapshotRow& row) { return {row.applied_seq, DecodeSeqs(row.window)}; }

std::optional<std::vector<int64_t>> PublicationsToRepeat(const State& s, const Model& model,
                                                         const ModelPoint& point) {
  std::vector<int64_t> seqs;
  for (const auto& [seq, entry] : model.log.entries()) {
    const auto* const publication = std::get_if<LoggedPublication>(&entry);
    if (publication == nullptr) continue;
    const auto version = s.versions.find(publication->version_id);
    if (version == s.versions.end() || version->second.seq_id != seq) continue;
    if (version->second.on_disk()) continue;
    if (seq < point.applied_seq) return std::nullopt;
    seqs.push_back(seq);
  }
  return seqs;
}

bool IsTrimmed(const State& s, const Model& model) {
  return model.snapshots.size() >= kSnapshotsKept &&
         PublicationsToRepeat(s, model, PointOf(model.snapshots.front()));
}

void TrimHistory(State& s, Model& model) {
  // A started recovery refers to the current history.
  if (model.recovery != nullptr && model.recovery->started) return;
  for (const LogEntry& entry : model.log.CutDropped(model.gradient.from_seq())) Drop(s, entry);
  while (model.snapshots.size() > kSnapshotsKept &&
         PublicationsToRepeat(s, model, PointOf(model.snapshots[1]))) {
    DropOldestSnapshot(s, model);
  }
  if (!IsTrimmed(s, model)) return;
  const ModelPoint base = PointOf(model.snapshots.front());
  DropCreation(s, model);
  for (const LogEntry& entry : model.log.CutBefore(base)) Drop(s, entry);
  if (model.row.log_from_seq == base.applied_seq) return;
  model.row.log_from_seq = base.applied_seq;
  PutRow(s, model);
}

void ForgetRecovery(State& s, Model& model) {
  if (model.recovery == nullptr) return;
  for (const auto& [id, seq] : model.recovery->running) s.replays.erase(id);
  model.recovery.reset();
}

void ReleaseHistory(State& s, Model& model) {
  ForgetRecovery(s, model);
  for (const LogEntry& entry : model.log.CutAll()) Drop(s, entry);
  DropCreation(s, model);
  while (!model.snapshots.empty()) DropOldestSnapshot(s, model);
}

}  // namespace lathe::engine
