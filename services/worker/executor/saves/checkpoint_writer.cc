#include "services/worker/executor/saves/checkpoint_writer.h"

#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <c10/core/InferenceMode.h>

#include "absl/strings/str_format.h"
#include "libs/common/fail_point/fail_point.h"
#include "libs/common/status_macros.h"
#include "services/worker/torch/torch_guard.h"

namespace lathe::worker {
namespace {

// Returns the size of the checkpoint. A training checkpoint has weights and both moments.
int64_t NumBytes(const StagedSave& save) {
  if (save.adapter) return 3 * int64_t{sizeof(float)} * save.adapter->num_parameters();
  return save.weights->num_bytes();
}

// Adds the needed and the free bytes to the error of a full disk.
absl::Status WithRoom(const absl::Status& status, const std::filesystem::path& root,
                      int64_t needed_bytes) {
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(root, error);
  if (!absl::IsResourceExhausted(status) || error) return status;
  return absl::ResourceExhaustedError(absl::StrFormat(
      "%s (the checkpoint takes about %d bytes, %d are free on disk)",
      std::string(status.message()), needed_bytes, static_cast<int64_t>(space.available)));
}

}  // namespace

CheckpointWriter::CheckpointWriter(CheckpointStore& store,
                                   std::function<void(ReportEvent)> on_report)
    : store_(store), on_report_(std::move(on_report)), thread_("checkpoints", [this] { Run(); }) {}

CheckpointWriter::~CheckpointWriter() { queue_.Close(); }

absl::Status CheckpointWriter::Enqueue(StagedSave save) {
  if (queue_.TryPush(std::move(save))) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrFormat("%d saves are waiting, limit is %d", queue_.size(), kMaxQueuedSaves));
}

void CheckpointWriter::Run() {
  const c10::InferenceMode no_autograd;
  while (std::optional<StagedSave> save = queue_.Pop()) on_report_(Write(*save));
}

absl::StatusOr<SavedCheckpoint> CheckpointWriter::Save(const StagedSave& save) {
  const SaveCheckpoint& command = save.command;
  switch (command.kind) {
    case CheckpointKind::kTraining:
      return store_.SaveTraining(command.dir, command.model_id, *save.adapter, save.last_adam,
                                 command.manifest_json);
    case CheckpointKind::kSampler:
      return store_.SaveSampler(command.dir, command.model_id, *save.weights,
                                save.state.applied_seq, command.manifest_json);
    case CheckpointKind::kExternal:
    case CheckpointKind::kSnapshot:  // never in a SaveCheckpoint
      break;
  }
  std::vector<AgeRecipient> recipients;
  for (const std::string& text : command.age_recipients) {
    ASSIGN_OR_RETURN(recipients.emplace_back(), ParseAgeRecipient(text));
  }
  return store_.SaveExternal(command.dir, command.model_id, *save.weights, save.state.applied_seq,
                             recipients, command.manifest_json);
}

ReportEvent CheckpointWriter::Write(const StagedSave& save) {
  const SaveCheckpoint& command = save.command;
  FailPoint("worker.save.staged");
  const absl::StatusOr<SavedCheckpoint> saved = Guarded("save", [&] { return Save(save); });
  if (saved.ok()) FailPoint("worker.save.committed");
  ReportEvent event{.generation = save.generation, .report = {}, .model = save.state};
  if (saved.ok()) {
    event.report = SaveDone{command.request_id, saved->size_bytes, saved->manifest_sha256};
  } else {
    event.report =
        OpFailed{command.request_id, WithRoom(saved.status(), store_.root(), NumBytes(save))};
  }
  return event;
}

}  // namespace lathe::worker
