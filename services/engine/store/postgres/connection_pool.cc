#include "services/engine/store/postgres/connection_pool.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "libs/common/status_macros.h"
#include "libs/common/time/clock.h"
#include "services/engine/store/postgres/libpqxx.h"

namespace lathe::engine {

absl::Status PostgresPool::Run(absl::Duration max_time, const Work& work) {
  const absl::Time began = SteadyNow();
  ASSIGN_OR_RETURN(std::unique_ptr<PostgresConnection> connection, Take(max_time / 2));
  const bool was_idle = connection != nullptr;
  const absl::Time deadline = began + max_time;
  Outcome outcome = RunOnce(work, deadline, connection);
  if (was_idle && outcome.is_lost && SteadyNow() < deadline) {
    {
      // The other idle connections are probably broken too.
      absl::MutexLock lock(&mu_);
      idle_.clear();
    }
    outcome = RunOnce(work, deadline, connection);
  }
  Give(std::move(connection));
  const absl::Time now = SteadyNow();
  if (outcome.is_lost && now - began > slow_) {
    absl::MutexLock lock(&mu_);
    refused_until_ = now + (now - began);
  }
  return outcome.status;
}

absl::StatusOr<std::unique_ptr<PostgresConnection>> PostgresPool::Take(absl::Duration max_time) {
  absl::MutexLock lock(&mu_);
  if (SteadyNow() < refused_until_) {
    return absl::UnavailableError("the database did not answer a moment ago");
  }
  if (!mu_.AwaitWithTimeout(absl::Condition(this, &PostgresPool::HasRoomLocked), max_time)) {
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

PostgresPool::Outcome PostgresPool::RunOnce(const Work& work, absl::Time deadline,
                                            std::unique_ptr<PostgresConnection>& connection) {
  try {
    if (!connection) {
      PostgresConnection::Options options = options_;
      options.deadline = deadline;
      connection = std::make_unique<PostgresConnection>(options);
    }
    connection->WaitUntil(deadline);
    absl::Status status = work(*connection);
    if (!status.ok()) connection.reset();
    return {std::move(status)};
  } catch (const pqxx::in_doubt_error& error) {
    connection.reset();
    return {absl::AbortedError(
        absl::StrFormat("the database may have done it or not: %s", error.what()))};
  } catch (const pqxx::pqxx_exception& error) {
    connection.reset();
    return {StatusOf(error), FaultOf(error) == PostgresFault::kLost};
  }
}

}  // namespace lathe::engine
