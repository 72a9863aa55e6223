// Options of a worker, and the parts made from them.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "libs/common/object_store/storage_options.h"
#include "libs/common/rpc/engine_connection.h"
#include "services/worker/collectives/mesh.h"
#include "services/worker/executor/executor.h"
#include "services/worker/rpc/attach_client.h"

namespace lathe::worker {

struct WorkerOptions {
  EngineConnection engine;
  std::string group;
  int64_t rank = 0;   // -1: from the launcher's environment
  int64_t world = 0;  // 0: that of the mesh
  MeshShape mesh;
  std::string role;
  std::string rendezvous;      // for rank 0 of several; empty: the address that reaches the engine
  std::string version_listen;  // for rank 0 of a group that trains; empty: as rendezvous
  bool supervised = false;
  std::string model;  // [NAME=]PATH
  std::string device;
  std::string compute_dtype;
  int num_threads = 0;
  std::string tokenizer_id;
  std::string data_dir;
  std::string run_dir;  // empty: DATA_DIR/run
  StorageOptions storage;
  double memory_fraction = 0.9;
  int64_t host_memory_mib = 0;
  std::string numerics;
  double sampling_share = 0.5;
  int64_t prefill_stall_ms = 0;
  bool prefix_cache = true;
  int64_t resident_versions_mib = 0;
  bool cuda_graphs = true;
  std::string nonfinite_gradients;
  std::string metrics_listen;  // empty: no metrics page
  std::string log_level;
  std::string config_path;  // of --config; empty: none
};

// Reads flags, environment and file. Ends the process on an error.
WorkerOptions ParseWorkerOptionsOrExit(int argc, char** argv);

// Without --rank, a process of several gets its rank from the launcher. If the launcher gives a
// local rank, only the GPU of that number stays visible. InvalidArgument: no launcher gives a rank,
// or it has another number of processes. Call it before any code looks for GPUs.
absl::Status TakeLaunchPlace(WorkerOptions& options);

// InvalidArgument naming option, value and bound.
absl::Status Validate(const WorkerOptions& options);

// Returns the directory of checkpoints, or of this machine's copies of them.
std::string CheckpointRoot(const WorkerOptions& options);
ExecutorOptions MakeExecutorOptions(const WorkerOptions& options);
// Opens the object store of the options, if they name one. Errors as CheckStorageOptions.
absl::StatusOr<ExecutorStorage> OpenStorage(const WorkerOptions& options);
// Asks the store for its owner, for some seconds.
CheckpointPlace FindCheckpointPlace(const WorkerOptions& options);
AttachOptions MakeAttachOptions(const WorkerOptions& options);
WorkerIdentity MakeIdentity(const WorkerOptions& options);

}  // namespace lathe::worker
