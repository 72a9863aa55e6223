// manifest.json: the contents of a checkpoint directory and the checksums to verify them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/worker/ops/commands.h"
#include "services/worker/ops/training.h"

namespace lathe::worker {

inline constexpr char kManifestFile[] = "manifest.json";
inline constexpr int64_t kManifestFormatVersion = 1;

struct ManifestFile {
  std::string name;  // relative to the checkpoint directory
  int64_t size_bytes = 0;
  std::string sha256;
};

struct ManifestTensor {
  std::string file;
  std::string name;
  std::string dtype;  // as in a safetensors header
  std::vector<int64_t> shape;
  std::string sha256;  // of the tensor's bytes
};

struct OptimizerSummary {
  int64_t num_steps = 0;
  AdamParams last_adam;  // settings of the last step; each step has its own
};

struct Manifest {
  CheckpointKind kind = CheckpointKind::kTraining;
  std::string model_id;
  std::string base_model;
  std::string base_content_hash;  // ModelInfo::content_hash
  LoraSpec lora;
  int64_t applied_seq = 0;
  std::optional<OptimizerSummary> optimizer;  // training and snapshot kind
  std::vector<int64_t> window;  // snapshot kind: seq_ids in its accumulator, ascending
  std::vector<ManifestFile> files;
  std::vector<ManifestTensor> tensors;
};

// Returns JSON text. `extra_json` is an object (or empty) whose fields are added; a field of the
// manifest replaces one with the same name. InvalidArgument if it is not an object.
absl::StatusOr<std::string> ManifestToJson(const Manifest& manifest, const std::string& extra_json);

// Reads `dir`/manifest.json. NotFound, or InvalidArgument naming the field. Rejects an unknown
// format version and skips unknown fields. DataLoss if its own checksum does not match.
absl::StatusOr<Manifest> ReadManifest(const std::filesystem::path& dir);

}  // namespace lathe::worker
