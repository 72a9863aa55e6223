#include "services/worker/executor/versions/recovery_files.h"

#include <time.h>

#include <utility>

#include "libs/common/fail_point/fail_point.h"
#include "libs/common/status_macros.h"
#include "services/worker/torch/torch_guard.h"

namespace lathe::worker {
namespace {

// Returns the processor time of the calling thread.
absl::Duration ThreadTime() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return absl::DurationFromTimespec(time);
}

}  // namespace

RecoveryJobDone RecoveryFiles::Run(RecoveryJob job) const {
  const int64_t generation = job.generation;
  const int64_t number = job.number;
  RecoveryJobDone done = std::visit(
      [this](auto&& work) { return Do(std::forward<decltype(work)>(work)); }, std::move(job.work));
  done.generation = generation;
  done.number = number;
  return done;
}

RecoveryJobDone RecoveryFiles::Do(WriteSnapshot work) const {
  FailPoint("worker.snapshot.staged");
  const absl::Duration busy_before = ThreadTime();
  const ModelSnapshot& model = work.staged.model;
  SnapshotDone report{.snapshot_id = work.command.snapshot_id,
                      .state = {model.model_id, model.applied_seq, model.window}};
  if (model.weights == nullptr) return {.report = std::move(report)};  // another rank writes it
  const absl::StatusOr<SavedCheckpoint> saved = Guarded("write of a snapshot", [&] {
    return store_.SaveSnapshot(work.command.dir, model, work.command.manifest_json);
  });
  report.status = saved.status();
  report.write_time = work.staged.staging_time + ThreadTime() - busy_before;
  if (saved.ok()) {
    FailPoint("worker.snapshot.written");
    report.size_bytes = saved->size_bytes;
    report.manifest_sha256 = saved->manifest_sha256;
  }
  return {.report = std::move(report), .buffer = std::move(work.staged.buffer)};
}

RecoveryJobDone RecoveryFiles::Do(WriteVersion work) const {
  VersionSaved report{.version_id = work.command.version_id,
                      .dir = work.command.dir,
                      .seq_id = work.publication.seq_id};
  if (work.is_of_another_rank) return {.report = std::move(report), .ticket = work.ticket};
  const absl::StatusOr<SavedCheckpoint> saved =
      Guarded("save of a sampler version", [&] { return Save(work); });
  report.status = saved.status();
  if (saved.ok()) {
    FailPoint("worker.version.written");
    report.size_bytes = saved->size_bytes;
    report.manifest_sha256 = saved->manifest_sha256;
  }
  return {.report = std::move(report), .ticket = work.ticket};
}

absl::StatusOr<SavedCheckpoint> RecoveryFiles::Save(const WriteVersion& work) const {
  ASSIGN_OR_RETURN(const std::shared_ptr<const AdapterWeights> weights, WeightsOf(work));
  std::string model_id = work.publication.model_id;
  int64_t applied_seq = work.publication.applied_seq;
  if (!work.read_from.empty()) {
    ASSIGN_OR_RETURN(const Manifest manifest, store_.Describe(work.read_from));
    model_id = manifest.model_id;
    applied_seq = manifest.applied_seq;
  }
  return store_.SaveSampler(work.command.dir, model_id, *weights, applied_seq,
                            work.command.manifest_json);
}

absl::StatusOr<std::shared_ptr<const AdapterWeights>> RecoveryFiles::WeightsOf(
    const WriteVersion& work) const {
  if (const auto* spilled = std::get_if<ReadSpilled>(&work.weights)) {
    return ReadSpilledWeights(spilled->spilled, store_.model());
  }
  if (const auto* checkpoint = std::get_if<ReadCheckpoint>(&work.weights)) {
    return store_.LoadWeights(checkpoint->dir, at::kCPU);
  }
  return std::get<std::shared_ptr<const AdapterWeights>>(work.weights);
}

}  // namespace lathe::worker
