// Writes checkpoints while the executor goes on.
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

// A model's state as it was when the save's turn came; nothing else uses these tensors' memory.
struct StagedSave {
  int64_t generation = 0;
  SaveCheckpoint command;
  std::optional<Adapter> adapter;                 // training kind
  AdamParams last_adam;                           // training kind
  std::shared_ptr<const AdapterWeights> weights;  // sampler and external kind
  ModelState state;
};

// One thread, one save at a time, in order. `on_report` gets a SaveDone when the checkpoint is
// durable, else an OpFailed. The destructor finishes what is queued. `store` must outlive it.
class CheckpointWriter {
 public:
  static constexpr size_t kMaxQueuedSaves = 64;

  CheckpointWriter(CheckpointStore& store, std::function<void(ReportEvent)> on_report);
  ~CheckpointWriter();

  // ResourceExhausted: kMaxQueuedSaves are waiting.
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
