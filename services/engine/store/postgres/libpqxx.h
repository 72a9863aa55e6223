// libpqxx 6.4 as this folder uses it: its headers, connections that do not reconnect, and what its
// errors mean.
#pragma once

#include <string_view>

#include "absl/status/status.h"

// The headers name deprecated things.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

#include <pqxx/binarystring>
#include <pqxx/connection_base>
#include <pqxx/connectionpolicy>
#include <pqxx/except>
#include <pqxx/nontransaction>
#include <pqxx/prepared_statement>
#include <pqxx/result>
#include <pqxx/row>
#include <pqxx/stream_from>
#include <pqxx/tablewriter>
#include <pqxx/transaction>

namespace lathe::engine {

// A connection that libpqxx opens again would lack the settings of the session, and nothing would
// bound the wait for it.
inline void ForbidReconnects(pqxx::connection_base& connection) {
  connection.inhibit_reactivation(true);
}

enum class PostgresFault {
  kLost,      // the connection is lost; the work in progress may or may not be done
  kConflict,  // another transaction was in the way; a retry may succeed
  kPassing,   // the server cannot do it now: a lock, no space, no free connection
  kOurs,      // a bug: a constraint was violated or the SQL is wrong; a retry fails again
};

PostgresFault FaultOf(const pqxx::pqxx_exception& error);
// Classifies an SQLSTATE of five characters.
PostgresFault FaultOf(std::string_view sqlstate);

// Unavailable for kLost and kPassing, Aborted for kConflict, Internal for kOurs. The message is one
// line.
absl::Status StatusOf(const pqxx::pqxx_exception& error);

}  // namespace lathe::engine

#pragma GCC diagnostic pop
