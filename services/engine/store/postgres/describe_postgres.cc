#include <string>
#include <vector>

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

// Returns what keeps an engine from starting with this server. `schema` may be of an older release.
absl::Status CheckServer(const Server& server, const SchemaState& schema, const Schema& own) {
  if (server.version_number < kOldestVersion) {
    return absl::FailedPreconditionError(
        absl::StrFormat("PostgreSQL is version %s, expected 15 or newer", server.version));
  }
  if (server.is_standby) {
    return absl::FailedPreconditionError(
        "the server is a standby of Postgres, which takes no writes; name the primary");
  }
  if (!server.may_create && schema.version < own.version()) {
    return absl::FailedPreconditionError(
        "the user may not create tables; make it the owner: ALTER DATABASE … OWNER TO …");
  }
  return CheckSchema(schema, own);
}

// `here`: this machine's clock, at about the time of `server.now`.
std::vector<std::string> WarningsOf(const Server& server, absl::Time here) {
  std::vector<std::string> warnings;
  if (!server.may_create) {
    warnings.push_back(
        "the user may not create tables, as a later release has to; make it the owner: ALTER "
        "DATABASE … OWNER TO …");
  }
  if (server.max_connections < kConnections) {
    warnings.push_back(
        absl::StrFormat("max_connections is %d, expected at least %d for an engine and its standby",
                        server.max_connections, kConnections));
  }
  const absl::Duration clock_difference = server.now - here;
  if (absl::AbsDuration(clock_difference) > kMaxClockDifference) {
    warnings.push_back(absl::StrFormat(
        "the server's clock differs by %.0f s from this machine's, expected less than %.0f s",
        absl::ToDoubleSeconds(clock_difference), absl::ToDoubleSeconds(kMaxClockDifference)));
  }
  return warnings;
}

absl::StatusOr<StoreDescription> Describe(const PostgresConnection::Options& options) {
  PostgresConnection connection(options);
  RETURN_IF_ERROR(CheckSessions(connection, options));
  ReadServer(connection);  // prepares the statement
  const absl::Time began = SteadyNow();
  const Server server = ReadServer(connection);
  const absl::Duration latency = SteadyNow() - began;
  const absl::Time here = absl::Now();
  const Schema own = OwnSchema();
  ASSIGN_OR_RETURN(const SchemaState state, FindSchema(connection));
  RETURN_IF_ERROR(CheckServer(server, state, own));
  return StoreDescription{
      .text =
          absl::StrFormat("PostgreSQL %s, schema %d of %d, %d of %d connections, %.1f ms a query",
                          server.version, state.version, own.version(), server.num_connections,
                          server.max_connections, absl::ToDoubleMilliseconds(latency)),
      .warnings = WarningsOf(server, here)};
}

}  // namespace

absl::StatusOr<StoreDescription> DescribePostgres(const std::string& url) {
  try {
    return Describe({.url = url, .connect_timeout = kConnectTimeout});
  } catch (const pqxx::pqxx_exception& error) {
    return StatusOf(error);
  }
}

}  // namespace lathe::engine
