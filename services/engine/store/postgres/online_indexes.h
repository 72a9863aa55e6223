// Makes indexes of large tables beside the commits.
#pragma once

#include "absl/status/status.h"
#include "services/engine/store/postgres/connection.h"
#include "services/engine/store/sql/schema.h"

namespace lathe::engine {

// Returns whether all indexes of the online steps of `schema` are there. Throws the exceptions of
// libpqxx.
bool HasOnlineIndexes(PostgresConnection& connection, const Schema& schema);

// Makes the indexes of the online steps of `schema` that are not there or not valid, one after the
// other, with CREATE INDEX CONCURRENTLY: commits go on. Each waits for the transactions that are
// open when it begins. A server or an engine that ends meanwhile leaves an invalid index, which is
// made again. Returns Unavailable while another engine makes them. `connection` must have no
// time-outs and no open transaction. Throws the exceptions of libpqxx.
absl::Status MakeIndexesOnline(PostgresConnection& connection, const Schema& schema);

}  // namespace lathe::engine
