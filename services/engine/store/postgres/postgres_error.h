// Classifies the errors of a Postgres connection.
#pragma once

#include <exception>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lathe::engine {

enum class PostgresFault {
  kLost,      // the connection is lost; the work in progress may or may not be done
  kConflict,  // another transaction was in the way; a retry may succeed
  kPassing,   // the server cannot do it now: a lock, no space, no free connection
  kOurs,      // a bug: a constraint was violated or the SQL is wrong; a retry fails again
};

// Classifies an SQLSTATE of five characters. An empty `sqlstate` means that there is none: kLost.
PostgresFault FaultOf(std::string_view sqlstate);

class PostgresError : public std::exception {
 public:
  PostgresError(PostgresFault fault, std::string_view sqlstate, std::string_view message);

  PostgresFault fault() const { return fault_; }
  // Unavailable for kLost and kPassing, Aborted for kConflict, Internal for kOurs.
  const absl::Status& status() const { return status_; }
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  PostgresFault fault_;
  std::string text_;
  absl::Status status_;
};

}  // namespace lathe::engine
