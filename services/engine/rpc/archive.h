// Download links of checkpoints: signed here, checked here, read by the gateway.
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "libs/common/time/clock.h"
#include "protos/lathe/v1/engine.pb.h"
#include "services/engine/store/rows.h"

namespace lathe::engine {

// A token names one checkpoint directory and when it ends, under HMAC-SHA-256. Thread-safe.
class ArchiveSigner {
 public:
  static constexpr absl::Duration kLifetime = absl::Hours(1);

  // `secret` signs; `clock` must outlive this.
  ArchiveSigner(std::string secret, std::filesystem::path checkpoints_dir, Clock& clock);

  // NotFound when a file of the checkpoint is missing.
  absl::StatusOr<v1::DescribeArchiveResponse> Describe(const CheckpointRow& row);
  // InvalidArgument for what Describe has not signed, OutOfRange ("link_expired") after its time,
  // NotFound when a file is gone.
  absl::StatusOr<v1::OpenArchiveResponse> Open(const std::string& token);

 private:
  // Files of the checkpoint below `dir` with their sizes.
  absl::StatusOr<v1::OpenArchiveResponse> ListFiles(const std::string& dir) const;

  const std::string secret_;
  const std::filesystem::path checkpoints_dir_;
  Clock& clock_;
};

}  // namespace lathe::engine
