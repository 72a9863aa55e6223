// Reads sampler versions from the memory of other processes. Native types only: no torch, no
// protobuf.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/worker/ops/commands.h"
#include "services/worker/ops/training.h"

namespace lathe::worker {

// Describes a version's bytes. They are fp32, little-endian, in the AdapterLayout of the whole
// model.
struct VersionHeader {
  std::string base_content_hash;  // identifies the base model of the weights
  LoraSpec lora;
  int64_t num_bytes = 0;
  std::string model_id;     // model that was published
  int64_t seq_id = 0;       // the publication
  int64_t applied_seq = 0;  // the model's last step before it
};

// Reads what another process serves. Thread-safe.
class VersionReader {
 public:
  // Gets the header. Returns the destination of its `num_bytes`, or an error to refuse them.
  using Begin = std::function<absl::StatusOr<void*>(const VersionHeader& header)>;

  virtual ~VersionReader() = default;
  // Blocks until a deadline at the latest. Calls `begin` once the header has arrived, and returns
  // its error if it fails. DataLoss: the bytes are not the ones sent. Unavailable or
  // DeadlineExceeded: the process does not answer. Otherwise returns the status that it answers.
  virtual absl::Status Read(const VersionAddress& source, const std::string& version_id,
                            int64_t seq_id, const Begin& begin) = 0;
};

}  // namespace lathe::worker
