// A small pool of Postgres connections that threads share.
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

// Thread-safe. Opens connections when they are first needed, at most `max_connections`.
class PostgresPool {
 public:
  using Work = std::function<absl::Status(PostgresConnection&)>;

  // When a connection was lost after more than `slow`, the pool refuses other calls for a while,
  // see Run.
  PostgresPool(PostgresConnection::Options options, int max_connections,
               absl::Duration slow = absl::Seconds(1))
      : options_(std::move(options)), max_connections_(max_connections), slow_(slow) {}

  // Runs `work` on a connection that no other call uses and turns what `work` throws into a Status.
  // If an idle connection turns out to be broken, replaces it and runs `work` again, unless a
  // commit was under way. Returns Unavailable when the database cannot do it within `max_time`,
  // which includes the wait for a free connection. After a call that lost
  // its connection slowly, the pool refuses all calls at once, for as long as that call took. So
  // threads do not pile up behind a database that hangs. A server that refuses a statement, for
  // example because its time is over, answers; that concerns no other call.
  absl::Status Run(absl::Duration max_time, const Work& work);

 private:
  bool HasRoomLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return num_used_ < max_connections_;
  }
  // Returns null when no connection is idle and the caller may open one. Returns Unavailable when
  // all are in use for `max_time`.
  absl::StatusOr<std::unique_ptr<PostgresConnection>> Take(absl::Duration max_time);
  void Give(std::unique_ptr<PostgresConnection> connection);
  struct Outcome {
    absl::Status status;
    bool is_lost = false;  // the connection broke, and nothing was committed
  };
  // Opens a connection when `connection` is null. Drops one that failed.
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
