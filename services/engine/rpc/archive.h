// Download links of checkpoints: created and verified here, served by the gateway.
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

// Signs and verifies download tokens with HMAC-SHA-256. A token names a checkpoint directory, or
// one file in it, and its own expiry. Any gateway of this store can serve it. Thread-safe.
class ArchiveSigner {
 public:
  static constexpr absl::Duration kLifetime = absl::Hours(1);

  // `secret` is the signing key. `clock` must outlive this.
  ArchiveSigner(std::string secret, std::filesystem::path checkpoints_dir, Clock& clock);

  // Creates the link to an archive. NotFound: a file of the checkpoint is missing. InvalidArgument:
  // the checkpoint is external.
  absl::StatusOr<v1::DescribeArchiveResponse> Describe(const CheckpointRow& row);
  // Creates a link to each file of an external checkpoint; the links expire with the checkpoint.
  // NotFound: a file is missing. InvalidArgument: the checkpoint is of another kind.
  absl::StatusOr<v1::DescribeExternalWeightsResponse> DescribeFiles(const CheckpointRow& row);
  // Verifies a token. InvalidArgument: not signed with `secret`. OutOfRange ("link_expired"):
  // expired. NotFound: a file is missing.
  absl::StatusOr<v1::OpenArchiveResponse> Open(const std::string& token);

 private:
  struct Claim;
  std::string Sign(const Claim& claim) const;
  // Returns the checkpoint's files below `dir` with their sizes.
  absl::StatusOr<v1::OpenArchiveResponse> ListFiles(const std::string& dir) const;
  // Returns nullopt if there is no such file.
  std::optional<int64_t> SizeOf(const std::string& dir, const std::string& name) const;

  const std::string secret_;
  const std::filesystem::path checkpoints_dir_;
  Clock& clock_;
};

}  // namespace lathe::engine
