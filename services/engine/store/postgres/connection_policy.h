// How libpqxx reaches the server: with our time limits.
#pragma once

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "services/engine/store/postgres/connection_watch.h"
#include "services/engine/store/postgres/libpqxx.h"

namespace lathe::engine {

struct ConnectionOptions {
  // Connection URL as libpq takes it: postgres://user:password@host:port/database?parameters.
  std::string url;
  absl::Duration connect_timeout = absl::Seconds(5);
  // A statement that takes longer fails with kPassing; zero: no limit. A server that sends
  // nothing for this long and 5 s more counts as lost.
  absl::Duration statement_timeout = absl::Seconds(10);
  // Longest wait for one lock; a statement that waits longer fails with kPassing.
  absl::Duration lock_timeout = absl::Seconds(2);
  // The server rolls back a transaction whose client is silent for this long.
  absl::Duration idle_in_transaction_timeout = absl::Seconds(2);
  // Ends calls that last too long. Null: calls always wait. Must outlive the connection.
  ConnectionWatch* watch = nullptr;
  // Initial deadline, see PostgresConnection::WaitUntil. It also bounds the connection attempt.
  absl::Time deadline = absl::InfiniteFuture();
};

// Opens and closes the connection of libpqxx, once. Throws pqxx::broken_connection.
class ConnectionPolicy final : public pqxx::connectionpolicy {
 public:
  explicit ConnectionPolicy(const ConnectionOptions& options)
      : connectionpolicy(options.url), options_(options) {}

  handle do_startconnect(handle connected) override;
  handle do_disconnect(handle connected) noexcept override;

  // Marks a call of the connection, for the watch. It may last until `deadline` or until the
  // server counts as lost.
  class Call {
   public:
    Call(ConnectionPolicy& policy, absl::Time deadline);
    Call(const Call&) = delete;
    ~Call();

   private:
    ConnectionPolicy& policy_;
  };

  // Returns SQL that sets the time limits of the session.
  std::string Settings() const;
  // Returns why the connection was lost.
  std::string LostReason() const;

 private:
  // The only user of libpq itself: libpqxx has no pipeline of prepared statements.
  friend class GroupCommit;

  // Waits for the connection without libpq's own wait, which uses the wall clock.
  void Await(handle connecting) const;

  const ConnectionOptions options_;
  handle handle_ = nullptr;
  std::optional<ConnectionWatch::Socket> socket_;
};

}  // namespace lathe::engine
