// Ends calls to Postgres that last too long.
#pragma once

#include <atomic>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "libs/common/concurrency/named_thread.h"

namespace lathe::engine {

// libpqxx blocks until the server answers. A thread of the watch shuts down the socket of a call
// whose time is over, and the call then fails like one whose connection was lost. Must outlive the
// connections that it watches. Thread-safe.
class ConnectionWatch {
 public:
  // The socket of one connection. Its owner closes the socket after this is destroyed, so that the
  // watch never shuts down another connection of the same number.
  class Socket {
   public:
    Socket(ConnectionWatch& watch, int fd);
    Socket(const Socket&) = delete;
    ~Socket();

    // Marks a call that may last until `deadline`, by SteadyNow. While data of a large result
    // arrives by TCP, the call may go on until `latest`. The next call or EndCall ends it.
    void BeginCall(absl::Time deadline, absl::Time latest);
    void EndCall();
    // Returns why the watch has shut the socket down; empty: it has not.
    std::string reason() const;

   private:
    friend class ConnectionWatch;

    ConnectionWatch& watch_;
    const int fd_;
    // Guarded by the watch.
    bool is_called_ = false;
    absl::Time began_;
    absl::Time deadline_;
    absl::Time latest_;
    int64_t num_received_ = 0;
    std::string reason_;
  };

  ConnectionWatch();

  // From here on, no call waits longer than a moment.
  void GiveUp() { given_up_ = true; }
  bool has_given_up() const { return given_up_; }
  // Interval at which waits are looked at.
  static absl::Duration period();

 private:
  void Look();
  // Returns why the call has to end; empty: it may go on.
  std::string LookAtLocked(Socket& socket, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  std::atomic<bool> given_up_ = false;
  mutable absl::Mutex mu_;
  std::set<Socket*> sockets_ ABSL_GUARDED_BY(mu_);
  PeriodicTask task_;
};

}  // namespace lathe::engine
