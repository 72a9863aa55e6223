#include "services/worker/executor/saves/checkpoint_writer.h"

#include <filesystem>
#include <optional>
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
                                   std::function<void(ReportEvent)> on_report,
                                   std::function<void(SaveWritten)> on_written)
    : store_(store),
      on_report_(std::move(on_report)),
      on_written_(std::move(on_written)),
      thread_("checkpoints", [this] { Run(); }) {}

CheckpointWriter::~CheckpointWriter() { queue_.Close(); }

void CheckpointWriter::Add(int64_t num_bytes) {
  ++num_staged_;
  staged_bytes_ += num_bytes;
}

void CheckpointWriter::Remove(const SaveWritten& written) {
  --num_staged_;
  staged_bytes_ -= written.num_bytes;
}

bool CheckpointWriter::HasRoom(int64_t num_bytes, int64_t max_bytes) const {
  if (num_staged_ == 0) return true;
  return num_staged_ < kMaxStagedSaves && staged_bytes_ + num_bytes <= max_bytes;
}

void CheckpointWriter::Enqueue(StagedSave save) {
  queue_.Push(std::move(save));  // does not wait, because HasRoom bounds the staged saves
}

void CheckpointWriter::Run() {
  const c10::InferenceMode no_autograd;
  while (std::optional<StagedSave> save = queue_.Pop()) {
    ReportEvent event = Write(*save);
    const SaveWritten written{save->num_bytes};
    save.reset();
    on_report_(std::move(event));
    on_written_(written);
  }
}

absl::StatusOr<SavedCheckpoint> CheckpointWriter::Save(const StagedSave& save) {
  const SaveCheckpoint& command = save.command;
  switch (command.kind) {
    case CheckpointKind::kTraining:
      return store_.SaveTraining(command.dir, save.model, command.manifest_json);
    case CheckpointKind::kSampler:
      return store_.SaveSampler(command.dir, command.model_id, *save.model.weights,
                                save.model.applied_seq, command.manifest_json);
    case CheckpointKind::kExternal:
    case CheckpointKind::kSnapshot:  // never in a SaveCheckpoint
      break;
  }
  std::vector<AgeRecipient> recipients;
  for (const std::string& text : command.age_recipients) {
    ASSIGN_OR_RETURN(recipients.emplace_back(), ParseAgeRecipient(text));
  }
  return store_.SaveExternal(command.dir, command.model_id, *save.model.weights,
                             save.model.applied_seq, recipients, command.manifest_json);
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
        OpFailed{command.request_id, WithRoom(saved.status(), store_.root(), save.num_bytes)};
  }
  return event;
}

}  // namespace lathe::worker
