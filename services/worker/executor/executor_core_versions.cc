// Commands of an ExecutorCore for sampler versions.
#include <optional>
#include <utility>
#include <variant>

#include "libs/common/status_macros.h"
#include "services/worker/executor/executor_core.h"
#include "services/worker/torch/torch_guard.h"

namespace lathe::worker {

void ExecutorCore::Do(const LoadVersion& command) {
  if (versions_.Load(command)) Emit(VersionLoaded{command.version_id, command.inflight_seq_id});
}

// Running samples of the version continue with the weights that it has now.
void ExecutorCore::MoveSamples(const std::string& version_id) {
  const absl::StatusOr<SamplerVersion> version = versions_.Find(version_id);
  sampling_.MoveVersion(version_id, version->weights, version->inflight_seq);
}

void ExecutorCore::Do(const SaveVersion& command) {
  if (pending_versions_.contains(command.version_id)) {
    deferred_copies_.emplace_back(command);
    return;
  }
  absl::Status status = [&]() -> absl::Status {
    if (model_ops_.SavesFromMemory()) {
      ASSIGN_OR_RETURN(const bool is_here, versions_.Fetch(command.version_id));
      if (!is_here) {
        deferred_copies_.emplace_back(command);
        return absl::OkStatus();
      }
      RETURN_IF_ERROR(versions_.Find(command.version_id).status());
    }
    ASSIGN_OR_RETURN(WriteVersion work, versions_.BeginSave(command));
    work = model_ops_.StageVersion(std::move(work));
    return parts_.recovery_jobs.Enqueue({.generation = generation_, .work = std::move(work)});
  }();
  if (!status.ok()) {
    Emit(VersionSaved{
        .version_id = command.version_id, .dir = command.dir, .status = std::move(status)});
  }
}

absl::StatusOr<VersionServed> ExecutorCore::Serve(const ServeVersion& command) {
  ASSIGN_OR_RETURN(const SamplerVersion version, versions_.Find(command.version_id));
  // Collective: all ranks call it, because each has a part of the version. Only rank 0 gets the
  // whole and serves it.
  std::optional<ServedVersion> served = model_ops_.ServedCopy(version);
  if (served.has_value()) {
    if (parts_.served_versions == nullptr) {
      return absl::FailedPreconditionError("this process serves no sampler versions");
    }
    parts_.served_versions->Put(command.version_id, *std::move(served), command.num_reads);
  }
  return VersionServed{.version_id = command.version_id,
                       .reader = command.reader,
                       .seq_id = version.publication.seq_id};
}

void ExecutorCore::Do(const ServeVersion& command) {
  absl::StatusOr<bool> is_here = !pending_versions_.contains(command.version_id);
  if (*is_here) is_here = versions_.Fetch(command.version_id);
  if (is_here.ok() && !*is_here) {
    deferred_copies_.emplace_back(command);
    return;
  }
  // Without memory for a copy the command fails, and the engine transfers the version as a file.
  absl::StatusOr<VersionServed> served =
      is_here.ok() ? Guarded("serving of a version", [&] { return Serve(command); })
                   : is_here.status();
  if (!served.ok()) {
    served = VersionServed{.version_id = command.version_id,
                           .reader = command.reader,
                           .status = std::move(served).status()};
  }
  Emit(*std::move(served));
}

void ExecutorCore::ResumeDeferredCopies() {
  for (const auto& copy : std::exchange(deferred_copies_, {})) {
    std::visit([this](const auto& command) { Do(command); }, copy);
  }
}

void ExecutorCore::Do(DropVersion command) {
  versions_.Drop(command.version_id);
  if (parts_.served_versions != nullptr) parts_.served_versions->Drop(command.version_id);
  sampling_.DropVersion(command.version_id);
  // No other event resumes the samples that waited for its weights.
  if (!pending_versions_.contains(command.version_id)) ReleaseDeferredSamples(command.version_id);
  ResumeDeferredCopies();
}

void ExecutorCore::Apply(VersionJobDone done) {
  const std::optional<VersionTable::EndedRead> read = versions_.Finish(std::move(done));
  if (!read.has_value()) return;
  const std::string& version_id = read->version_id;
  const absl::StatusOr<SamplerVersion> version = versions_.Find(version_id);
  if (!versions_.Has(version_id)) {
    Emit(VersionFailed{version_id, version.status()});
  } else if (read->is_load) {
    if (version->inflight_seq > 0) MoveSamples(version_id);
    Emit(VersionLoaded{version_id, version->inflight_seq});
  }
  ReleaseDeferredSamples(version_id);
  ResumeDeferredCopies();
  versions_.ForgetFailure(version_id);
}

}  // namespace lathe::worker
