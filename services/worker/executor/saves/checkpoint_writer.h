// Writes checkpoints on a thread beside the executor's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "libs/common/concurrency/bounded_queue.h"
#include "libs/common/concurrency/named_thread.h"
#include "services/worker/checkpoint/checkpoint_store.h"
#include "services/worker/executor/executor_port.h"

namespace lathe::worker {

// A model's state at the point of the save among the model's operations. Later operations do not
// change these tensors.
struct StagedSave {
  int64_t generation = 0;
  SaveCheckpoint command;
  ModelSnapshot model;  // without moments unless it is of the training kind
  ModelState state;
  int64_t num_bytes = 0;  // memory of its tensors
};

// A save that no longer takes memory: it is durable or has failed.
struct SaveWritten {
  int64_t num_bytes = 0;
};

// Writes one save at a time, in order, on one thread. `on_report` is called there with a SaveDone
// when the checkpoint is durable, or with an OpFailed. `on_written` is called next, when the save's
// memory is free. It may block. The destructor finishes the queued saves. `store` must outlive the
// writer.
class CheckpointWriter {
 public:
  CheckpointWriter(CheckpointStore& store, std::function<void(ReportEvent)> on_report,
                   std::function<void(SaveWritten)> on_written);
  ~CheckpointWriter();

  // The staged saves, from Add to Remove, those of earlier generations included. Each of several
  // ranks counts all of them, so that all ranks stage the same saves, though only rank 0 has their
  // memory. Executor thread only.
  void Add(int64_t num_bytes);
  void Remove(const SaveWritten& written);
  int64_t staged_bytes() const { return staged_bytes_; }

  // Returns true if a save of this size may be staged: no other one is staged, or all of them have
  // at most `max_bytes`, and their number has a bound too.
  bool HasRoom(int64_t num_bytes, int64_t max_bytes) const;

  // Takes a save that Add has counted.
  void Enqueue(StagedSave save);

 private:
  static constexpr size_t kMaxStagedSaves = 64;

  void Run();
  absl::StatusOr<SavedCheckpoint> Save(const StagedSave& save);
  ReportEvent Write(const StagedSave& save);

  CheckpointStore& store_;
  const std::function<void(ReportEvent)> on_report_;
  const std::function<void(SaveWritten)> on_written_;
  size_t num_staged_ = 0;
  int64_t staged_bytes_ = 0;
  BoundedQueue<StagedSave> queue_{kMaxStagedSaves};
  NamedThread thread_;
};

}  // namespace lathe::worker
