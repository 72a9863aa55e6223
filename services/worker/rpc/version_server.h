// lathe.v1.VersionSource: lets ranks of other groups read sampler versions from this process.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "protos/lathe/v1/worker.grpc.pb.h"
#include "services/worker/executor/served_versions.h"
#include "services/worker/ops.h"

namespace lathe::worker {

// Whoever shows the token may read, so many at a time; nothing is encrypted. gRPC's threads copy
// from memory into its buffers and wait for nobody: a reader that is slow costs a buffer.
class VersionServer final : public lathe::v1::VersionSource::CallbackService {
 public:
  static constexpr int kMaxReads = 256;  // every rank of a group reads each version itself

  // Listens at the numeric address `host`, a port that the kernel chooses. `versions` must outlive
  // it. Unavailable: it cannot listen there.
  static absl::StatusOr<std::unique_ptr<VersionServer>> Start(const std::string& host,
                                                              ServedVersions& versions);
  // Ends the reads under way.
  ~VersionServer() override;

  // Where it is read, with a token that is this process's own.
  const VersionAddress& address() const { return address_; }

  grpc::ServerWriteReactor<lathe::v1::VersionChunk>* ReadVersion(
      grpc::CallbackServerContext* context, const lathe::v1::ReadVersionRequest* request) override;

 private:
  class Call;

  explicit VersionServer(ServedVersions& versions);
  // Counts a read when there is a version.
  absl::StatusOr<std::shared_ptr<const ServedVersion>> Admit(
      const lathe::v1::ReadVersionRequest& request);

  ServedVersions& versions_;
  VersionAddress address_;
  std::atomic<int> num_reads_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace lathe::worker
