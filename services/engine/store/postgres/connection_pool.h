// A few connections shared by threads.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "services/engine/store/postgres/connection.h"

namespace lathe::engine {

// Thread-safe. Connections are made on first need, never more than `max_connections`.
class PostgresPool {
 public:
  using Work = std::function<absl::Status(PostgresConnection&)>;

  // A refusal that took longer than `slow` keeps others from trying.
  PostgresPool(PostgresConnection::Options options, int max_connections,
               absl::Duration slow = absl::Seconds(1))
      : options_(std::move(options)), max_connections_(max_connections), slow_(slow) {}

  // Runs `work` on a connection of its own and turns what it throws into a Status. A connection
  // that broke while it was idle is replaced and `work` runs again; nothing is run twice whose
  // commit was under way. Unavailable when the database cannot do it within `max_time`, the wait
  // for a free connection included. After an attempt that was refused slowly all others are refused
  // at once, for as long as that one took: threads do not pile up behind a database that hangs.
  absl::Status Run(absl::Duration max_time, const Work& work);

 private:
  bool HasRoomLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return num_used_ < max_connections_;
  }
  // Null: there is none, one may be made. Unavailable when all are in use for too long.
  absl::StatusOr<std::unique_ptr<PostgresConnection>> Take(absl::Duration max_time);
  void Give(std::unique_ptr<PostgresConnection> connection);
  struct Outcome {
    absl::Status status;
    bool is_repeatable = false;  // the connection broke, and nothing was committed
  };
  // Makes a connection when there is none; drops one that failed.
  Outcome RunOnce(const Work& work, absl::Time deadline,
                  std::unique_ptr<PostgresConnection>& connection);

  const PostgresConnection::Options options_;
  const int max_connections_;
  const absl::Duration slow_;
  absl::Mutex mu_;
  int num_used_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Time refused_until_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  std::vector<std::unique_ptr<PostgresConnection>> idle_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lathe::engine
