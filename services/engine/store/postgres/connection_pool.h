// A few connections shared by threads.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "services/engine/store/postgres/connection.h"

namespace lathe::engine {

// Thread-safe. Connections are made on first need, never more than `max_connections`.
class PostgresPool {
 public:
  using Work = std::function<absl::Status(PostgresConnection&)>;

  PostgresPool(PostgresConnection::Options options, int max_connections)
      : options_(std::move(options)), max_connections_(max_connections) {}

  // Runs `work` on a connection of its own and turns what it throws into a Status. A connection
  // that broke while it was idle is replaced and `work` runs again; nothing is run twice whose
  // commit was under way. Unavailable when none is free for kMaxWait, or none can be made.
  absl::Status Run(const Work& work);

 private:
  static constexpr absl::Duration kMaxWait = absl::Seconds(2);

  bool HasRoomLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return num_used_ < max_connections_;
  }
  // Null: there is none, one may be made. Unavailable when all are in use for too long.
  absl::StatusOr<std::unique_ptr<PostgresConnection>> Take();
  void Give(std::unique_ptr<PostgresConnection> connection);
  struct Outcome {
    absl::Status status;
    bool is_repeatable = false;  // the connection broke, and nothing was committed
  };
  // Makes a connection when there is none; drops one that failed.
  Outcome RunOnce(const Work& work, std::unique_ptr<PostgresConnection>& connection);

  const PostgresConnection::Options options_;
  const int max_connections_;
  absl::Mutex mu_;
  int num_used_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<std::unique_ptr<PostgresConnection>> idle_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lathe::engine
