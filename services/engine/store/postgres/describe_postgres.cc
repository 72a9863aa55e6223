#include <string>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "libs/common/status_macros.h"
#include "libs/common/time/clock.h"
#include "services/engine/store/describe_store.h"
#include "services/engine/store/postgres/migrate.h"
#include "services/engine/store/postgres/postgres_store.h"

namespace lathe::engine {
namespace {

constexpr int64_t kOldestVersion = 150000;  // server_version_num of release 15
// Connections of an engine and its standby (docs/database.md).
constexpr int64_t kConnections = 2 * 14;
constexpr absl::Duration kMaxClockDifference = absl::Seconds(60);

constexpr absl::Duration kConnectTimeout = absl::Seconds(5);

constexpr char kReadServer[] =
    "SELECT current_setting('server_version'), current_setting('server_version_num')::bigint,"
    "       current_setting('max_connections')::bigint,"
    "       (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),"
    "       has_schema_privilege(current_schema(), 'CREATE')::integer::bigint,"
    "       (extract(epoch FROM clock_timestamp()) * 1000)::bigint,"
    "       pg_is_in_recovery()::integer::bigint";

struct Server {
  std::string version;
  int64_t version_number = 0;
  int64_t max_connections = 0;
  int64_t num_connections = 0;
  bool may_create = false;
  absl::Time now;
  bool is_standby = false;
};

Server ReadServer(PostgresConnection& connection) {
  Query read = connection.Prepare(kReadServer);
  read.Next();
  Server server;
  server.version = read.Text();
  server.version_number = read.Int();
  server.max_connections = read.Int();
  server.num_connections = read.Int();
  server.may_create = read.Bool();
  server.now = absl::FromUnixMillis(read.Int());
  server.is_standby = read.Bool();
  return server;
}

// `here`: this machine's clock, at about the time of `server.now`.
absl::Status CheckServer(const Server& server, absl::Time here) {
  const absl::Duration clock_difference = server.now - here;
  if (server.version_number < kOldestVersion) {
    return absl::FailedPreconditionError(
        absl::StrFormat("PostgreSQL is version %s, expected 15 or newer", server.version));
  }
  if (server.is_standby) {
    return absl::FailedPreconditionError(
        "the server is a standby of Postgres, which takes no writes; name the primary");
  }
  if (!server.may_create) {
    return absl::FailedPreconditionError(
        "the user may not create tables; make it the owner: ALTER DATABASE … OWNER TO …");
  }
  if (server.max_connections < kConnections) {
    return absl::FailedPreconditionError(
        absl::StrFormat("max_connections is %d, expected at least %d for an engine and its standby",
                        server.max_connections, kConnections));
  }
  if (absl::AbsDuration(clock_difference) > kMaxClockDifference) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "the server's clock differs by %.0f s from this machine's, expected less than %.0f s",
        absl::ToDoubleSeconds(clock_difference), absl::ToDoubleSeconds(kMaxClockDifference)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Describe(const PostgresConnection::Options& options) {
  PostgresConnection connection(options);
  RETURN_IF_ERROR(CheckSessions(connection, options));
  ReadServer(connection);  // prepares the statement
  const absl::Time began = SteadyNow();
  const Server server = ReadServer(connection);
  const absl::Duration latency = SteadyNow() - began;
  RETURN_IF_ERROR(CheckServer(server, absl::Now()));
  const Schema own = OwnSchema();
  ASSIGN_OR_RETURN(const SchemaState state, FindSchema(connection));
  RETURN_IF_ERROR(CheckSchema(state, own));
  return absl::StrFormat("PostgreSQL %s, schema %d of %d, %d of %d connections, %.1f ms a query",
                         server.version, state.version, own.version(), server.num_connections,
                         server.max_connections, absl::ToDoubleMilliseconds(latency));
}

}  // namespace

absl::StatusOr<std::string> DescribePostgres(const std::string& url) {
  try {
    return Describe({.url = url, .connect_timeout = kConnectTimeout});
  } catch (const pqxx::pqxx_exception& error) {
    return StatusOf(error);
  }
}

}  // namespace lathe::engine
