// Writes checkpoints on a thread beside the executor's.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "libs/common/concurrency/bounded_queue.h"
#include "libs/common/concurrency/named_thread.h"
#include "services/worker/checkpoint/checkpoint_store.h"
#include "services/worker/executor/executor_port.h"
#include "services/worker/lora/adapter.h"

namespace lathe::worker {

// A model's state at the point of the save among the model's operations. Later operations do not
// change these tensors.
struct StagedSave {
  int64_t generation = 0;
  SaveCheckpoint command;
  std::optional<Adapter> adapter;                 // training kind only
  AdamParams last_adam;                           // training kind only
  std::shared_ptr<const AdapterWeights> weights;  // sampler and external kind only
  ModelState state;
};

// Writes one save at a time, in order, on one thread. `on_report` is called there with a SaveDone
// when the checkpoint is durable, or with an OpFailed. The destructor finishes the queued saves.
// `store` must outlive the writer.
class CheckpointWriter {
 public:
  static constexpr size_t kMaxQueuedSaves = 64;

  CheckpointWriter(CheckpointStore& store, std::function<void(ReportEvent)> on_report);
  ~CheckpointWriter();

  // ResourceExhausted: kMaxQueuedSaves saves are waiting.
  absl::Status Enqueue(StagedSave save);

 private:
  void Run();
  absl::StatusOr<SavedCheckpoint> Save(const StagedSave& save);
  ReportEvent Write(const StagedSave& save);

  CheckpointStore& store_;
  const std::function<void(ReportEvent)> on_report_;
  BoundedQueue<StagedSave> queue_{kMaxQueuedSaves};
  NamedThread thread_;
};

}  // namespace lathe::worker
