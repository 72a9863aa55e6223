// Sampler versions out of the memory of other processes. Native types only: no torch, no protobuf.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/worker/ops.h"

namespace lathe::worker {

// What a version's bytes are: fp32, little-endian, laid out as AdapterLayout says of the whole
// model.
struct VersionHeader {
  std::string base_content_hash;  // of the model that the weights are for
  LoraSpec lora;
  int64_t num_bytes = 0;
  std::string model_id;     // where they come from…
  int64_t seq_id = 0;       // … by which publication
  int64_t applied_seq = 0;  // … after which step
};

// Reads what another process serves. Thread-safe.
class VersionReader {
 public:
  // Takes the header and says where its `num_bytes` go, or why they are not wanted.
  using Begin = std::function<absl::StatusOr<void*>(const VersionHeader& header)>;

  virtual ~VersionReader() = default;
  // Blocks, until a deadline at the latest. `begin` is called once. The error of `begin`, DataLoss
  // when the bytes are not what was sent, Unavailable or DeadlineExceeded when the process does not
  // answer, else what it answers.
  virtual absl::Status Read(const VersionAddress& source, const std::string& version_id,
                            int64_t seq_id, const Begin& begin) = 0;
};

}  // namespace lathe::worker
