// Download links of checkpoints: signed here, checked here, read by the gateway.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "libs/common/time/clock.h"
#include "protos/lathe/v1/checkpoints.pb.h"
#include "protos/lathe/v1/engine.pb.h"
#include "services/engine/store/rows.h"

namespace lathe::engine {

// A token names one checkpoint directory, or one file of it, and when it ends, under HMAC-SHA-256.
// Any gateway of this store can serve it. Thread-safe.
class ArchiveSigner {
 public:
  static constexpr absl::Duration kLifetime = absl::Hours(1);

  // `secret` signs; `clock` must outlive this.
  ArchiveSigner(std::string secret, std::filesystem::path checkpoints_dir, Clock& clock);

  // NotFound when a file of the checkpoint is missing; InvalidArgument for external ones.
  absl::StatusOr<v1::DescribeArchiveResponse> Describe(const CheckpointRow& row);
  // A link for each file of an external checkpoint, which ends with the checkpoint. NotFound as
  // above; InvalidArgument for other kinds.
  absl::StatusOr<v1::DescribeExternalWeightsResponse> DescribeFiles(const CheckpointRow& row);
  // InvalidArgument for what was not signed here, OutOfRange ("link_expired") after its time,
  // NotFound when a file is gone.
  absl::StatusOr<v1::OpenArchiveResponse> Open(const std::string& token);

 private:
  struct Claim;
  std::string Sign(const Claim& claim) const;
  // Files of the checkpoint below `dir` with their sizes.
  absl::StatusOr<v1::OpenArchiveResponse> ListFiles(const std::string& dir) const;
  // Unset when there is no such file.
  std::optional<int64_t> SizeOf(const std::string& dir, const std::string& name) const;

  const std::string secret_;
  const std::filesystem::path checkpoints_dir_;
  Clock& clock_;
};

}  // namespace lathe::engine
