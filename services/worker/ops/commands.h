// Commands that cross from rpc/ (protobuf, gRPC) to executor/ (torch). The headers of this folder
// include neither library.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "services/worker/ops/sampling.h"
#include "services/worker/ops/training.h"

namespace lathe::worker {

struct TrainBatch {
  std::vector<TrainRequest> requests;
};

struct CreateAdapter {
  std::string request_id;
  std::string model_id;
  LoraSpec lora;
};

// Replaces a model's weights by those in `dir`. Creates the model if it is new.
struct LoadAdapter {
  std::string request_id;
  std::string model_id;
  int64_t seq_id = 0;  // 0: the load creates the model
  std::string dir;     // below the root of the checkpoint store
  bool with_optimizer = false;
};

// Copies the model's whole state when the command's turn comes, then writes the copy to `dir` in
// the background. Answered by SnapshotDone.
struct Snapshot {
  std::string snapshot_id;
  std::string model_id;
  std::string dir;
  std::string manifest_json;
};

// Sets the model to its state in the snapshot in `dir`. Creates the model if it is new.
struct RestoreAdapter {
  std::string request_id;
  std::string model_id;
  std::string dir;
};

struct DropAdapter {
  std::string request_id;  // empty: no answer is sent
  std::string model_id;
};

// Applies the accumulated gradient. Refused unless (expected_applied_seq, window) matches the
// model's state.
struct OptimStep {
  std::string request_id;
  std::string model_id;
  int64_t seq_id = 0;
  int64_t expected_applied_seq = 0;
  std::vector<int64_t> window;  // seq_ids in the accumulator, ascending
  AdamParams adam;
};

// Drops the accumulator and its window (a failed forward_backward made the gradient incomplete).
struct ClearGradient {
  std::string model_id;
};

// kExternal: a PEFT folder for other programs, encrypted if there are recipients, and never loaded.
// kSnapshot: the model's whole state, including the open window, for RestoreAdapter.
enum class CheckpointKind { kTraining, kSampler, kExternal, kSnapshot };

struct SaveCheckpoint {
  std::string request_id;
  std::string model_id;
  int64_t seq_id = 0;
  CheckpointKind kind = CheckpointKind::kTraining;
  std::string dir;                          // final directory, chosen by the engine
  std::string manifest_json;                // owner, names and term; copied into manifest.json
  std::vector<std::string> age_recipients;  // for kExternal: "age1…"; empty: plain files
};

// Makes a sampler version of the model's current weights. Each later publication replaces an
// inflight version. Samples that run under it continue with the new weights.
struct PublishVersion {
  std::string request_id;
  std::string model_id;
  int64_t seq_id = 0;
  std::string version_id;
  bool is_inflight = false;
};

// Address of a process that serves sampler versions from its memory.
struct VersionAddress {
  std::string address;  // HOST:PORT, numeric
  std::string token;    // a reader must present it
};

// Loads a sampler version from a checkpoint directory (training, sampler or snapshot kind), or from
// the memory of another process. Answered by VersionLoaded or VersionFailed, unless another
// LoadVersion or a DropVersion of it comes first.
struct LoadVersion {
  std::string version_id;
  std::string dir;
  // For an inflight version: seq_id of the publication that made these weights. Samples that run
  // under an earlier one continue with them. 0: the version is not inflight.
  int64_t inflight_seq_id = 0;
  std::optional<VersionAddress> source = std::nullopt;  // set: read from there, not `dir`
  int64_t source_seq_id = 0;                            // publication that the source serves
};

// Lets other processes read a version that this process has. Answered by VersionServed.
struct ServeVersion {
  std::string version_id;
  std::string reader;  // identifies the reader in the answer
  int64_t num_reads = 1;
};

// Writes a version that this process has as a sampler checkpoint. Answered by VersionSaved.
struct SaveVersion {
  std::string version_id;
  std::string dir;
  std::string manifest_json;
};

struct DropVersion {
  std::string version_id;
};

struct Cancel {
  std::string request_id;
};

// Reports the tokens of a sample from now on, beginning with those already sampled.
struct StreamSample {
  std::string request_id;
};

using Command =
    std::variant<TrainBatch, CreateAdapter, LoadAdapter, DropAdapter, OptimStep, ClearGradient,
                 SaveCheckpoint, PublishVersion, LoadVersion, DropVersion, SampleRequest, Cancel,
                 StreamSample, Snapshot, RestoreAdapter, SaveVersion, ServeVersion>;

}  // namespace lathe::worker
