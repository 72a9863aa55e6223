// What goes wrong with a database on the other side of a socket.
#pragma once

#include <exception>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lathe::engine {

enum class PostgresFault {
  kLost,      // the connection is gone; what was under way may or may not have happened
  kConflict,  // another transaction was in the way; the same again may work
  kPassing,   // the server cannot now: a lock, no space, no free connection, starting up
  kOurs,      // a constraint, wrong SQL: the same again fails again
};

// `sqlstate`: five characters, or empty where there is none.
PostgresFault FaultOf(std::string_view sqlstate);

class PostgresError : public std::exception {
 public:
  PostgresError(PostgresFault fault, std::string_view sqlstate, std::string_view message);

  PostgresFault fault() const { return fault_; }
  // Unavailable for what passes, Aborted for a conflict, Internal for what is ours.
  const absl::Status& status() const { return status_; }
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  PostgresFault fault_;
  std::string text_;
  absl::Status status_;
};

}  // namespace lathe::engine
