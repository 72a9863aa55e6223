// Download links of checkpoints: created and verified here, served by the gateway.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "libs/common/time/clock.h"
#include "protos/lathe/v1/checkpoints.pb.h"
#include "protos/lathe/v1/engine.pb.h"
#include "services/engine/rpc/signed_text.h"
#include "services/engine/runtime/checkpoint_dirs.h"
#include "services/engine/store/rows.h"

namespace lathe::engine {

// Signs and verifies download tokens. A token names a checkpoint, its files, the key that asked for
// the link, and its own expiry. It is no right by itself: whoever opens a link checks that the key
// may still read the checkpoint. Any gateway of this store can serve it. Thread-safe.
class ArchiveSigner {
 public:
  static constexpr absl::Duration kLifetime = absl::Hours(1);

  // Content of a token.
  struct Link {
    int64_t expires_at = 0;  // in seconds since the Unix epoch
    std::string key_id;
    std::string tinker_path;
    std::string dir;
    std::string member;  // the single file to download as it is; empty: an archive of all
  };

  // `secret` is the store's; the signing key is derived from it. `dirs` and `clock` must outlive
  // this.
  ArchiveSigner(std::string secret, CheckpointDirs& dirs, Clock& clock);

  // Creates the link to an archive for the key `key_id`. NotFound: a file of the checkpoint is
  // missing. InvalidArgument: the checkpoint is external.
  absl::StatusOr<v1::DescribeArchiveResponse> Describe(const CheckpointRow& row,
                                                       const std::string& key_id);
  // Creates a link to each file of an external checkpoint; the links expire with the checkpoint.
  // NotFound: a file is missing. InvalidArgument: the checkpoint is of another kind.
  absl::StatusOr<v1::DescribeExternalWeightsResponse> DescribeFiles(const CheckpointRow& row,
                                                                    const std::string& key_id);
  // Reads a token. InvalidArgument: this did not sign it. OutOfRange ("link_expired"): expired.
  absl::StatusOr<Link> Verify(const std::string& token) const;
  // Lists the files of a link to the checkpoint `row`. NotFound: a file is missing, or the
  // checkpoint was replaced since.
  absl::StatusOr<v1::OpenArchiveResponse> Open(const Link& link, const CheckpointRow& row) const;

 private:
  std::string Sign(const Link& link) const;
  // Returns the checkpoint's files below `dir` with their sizes.
  absl::StatusOr<v1::OpenArchiveResponse> ListFiles(const std::string& dir) const;
  // Returns nullopt if there is no such file.
  absl::StatusOr<std::optional<int64_t>> SizeOf(const std::string& dir,
                                                const std::string& name) const;

  const TextSigner signer_;
  CheckpointDirs& dirs_;
  Clock& clock_;
};

}  // namespace lathe::engine
