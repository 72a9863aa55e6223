#include "services/engine/store/postgres/connection_pool.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "libs/common/status_macros.h"

namespace lathe::engine {

absl::Status PostgresPool::Run(const Work& work) {
  ASSIGN_OR_RETURN(std::unique_ptr<PostgresConnection> connection, Take());
  const bool was_idle = connection != nullptr;
  Outcome outcome = RunOnce(work, connection);
  if (was_idle && outcome.is_repeatable) {
    {
      // Those beside it have broken too, or soon will.
      absl::MutexLock lock(&mu_);
      idle_.clear();
    }
    outcome = RunOnce(work, connection);
  }
  Give(std::move(connection));
  return outcome.status;
}

absl::StatusOr<std::unique_ptr<PostgresConnection>> PostgresPool::Take() {
  absl::MutexLock lock(&mu_);
  if (!mu_.AwaitWithTimeout(absl::Condition(this, &PostgresPool::HasRoomLocked), kMaxWait)) {
    return absl::UnavailableError(
        absl::StrFormat("all %d database connections are in use", max_connections_));
  }
  ++num_used_;
  if (idle_.empty()) return nullptr;
  std::unique_ptr<PostgresConnection> connection = std::move(idle_.back());
  idle_.pop_back();
  return connection;
}

void PostgresPool::Give(std::unique_ptr<PostgresConnection> connection) {
  absl::MutexLock lock(&mu_);
  --num_used_;
  if (connection) idle_.push_back(std::move(connection));
}

PostgresPool::Outcome PostgresPool::RunOnce(const Work& work,
                                            std::unique_ptr<PostgresConnection>& connection) {
  try {
    if (!connection) connection = std::make_unique<PostgresConnection>(options_);
    absl::Status status = work(*connection);
    if (!status.ok()) connection.reset();
    return {std::move(status)};
  } catch (const PostgresError& error) {
    const bool is_unknown = connection && connection->is_commit_unknown();
    connection.reset();
    if (is_unknown) {
      return {absl::AbortedError(
          absl::StrFormat("the database may have done it or not: %s", error.what()))};
    }
    return {error.status(), error.fault() == PostgresFault::kLost};
  }
}

}  // namespace lathe::engine
