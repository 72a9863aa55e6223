// Serves sampler versions of this process to ranks of other groups: lathe.v1.VersionSource.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "protos/lathe/v1/worker.grpc.pb.h"
#include "services/worker/executor/versions/served_versions.h"
#include "services/worker/ops/commands.h"

namespace lathe::worker {

// Serves readers that present the token, kMaxReads at a time. Nothing is encrypted. gRPC's threads
// copy from memory into its buffers and never block: a slow reader costs one buffer.
class VersionServer final : public lathe::v1::VersionSource::CallbackService {
 public:
  static constexpr int kMaxReads = 256;  // every rank of a group reads each version itself

  // Listens on the numeric address `host`, on a port that the kernel chooses. `versions` must
  // outlive the server. Unavailable: it cannot listen there.
  static absl::StatusOr<std::unique_ptr<VersionServer>> Start(const std::string& host,
                                                              ServedVersions& versions);
  // Cancels the current reads.
  ~VersionServer() override;

  // Address for readers, with a random token of this process.
  const VersionAddress& address() const { return address_; }

  grpc::ServerWriteReactor<lathe::v1::VersionChunk>* ReadVersion(
      grpc::CallbackServerContext* context, const lathe::v1::ReadVersionRequest* request) override;

 private:
  class Call;

  explicit VersionServer(ServedVersions& versions);
  // Checks the token and takes a version. Counts the read if it succeeds.
  absl::StatusOr<std::shared_ptr<const ServedVersion>> Admit(
      const lathe::v1::ReadVersionRequest& request);

  ServedVersions& versions_;
  VersionAddress address_;
  std::atomic<int> num_reads_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace lathe::worker
