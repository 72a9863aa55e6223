// Reads sampler versions of other processes over lathe.v1.VersionSource.
#pragma once

#include <grpcpp/client_context.h>

#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "services/worker/executor/versions/version_reader.h"

namespace lathe::worker {

// Uses one connection for each read. A read fails after a few seconds if the server stops
// answering, and after `timeout` if it is slow. Thread-safe.
class VersionClient final : public VersionReader {
 public:
  explicit VersionClient(absl::Duration timeout = absl::Seconds(60)) : timeout_(timeout) {}

  absl::Status Read(const VersionAddress& source, const std::string& version_id, int64_t seq_id,
                    const Begin& begin) override;
  // Cancels current and future reads, because the process ends.
  void Stop();

 private:
  // Returns false after Stop.
  bool Enter(grpc::ClientContext& context);
  void Leave(grpc::ClientContext& context);

  const absl::Duration timeout_;
  absl::Mutex mu_;
  std::set<grpc::ClientContext*> reads_ ABSL_GUARDED_BY(mu_);
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace lathe::worker
