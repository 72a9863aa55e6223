#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "libs/common/errors.h"
#include "libs/common/logging/logging.h"
#include "libs/common/status_macros.h"
#include "services/engine/store/database_view.h"
#include "services/engine/store/postgres/migrate.h"
#include "services/engine/store/postgres/online_indexes.h"
#include "services/engine/store/postgres/table_copy.h"
#include "services/engine/store/sql/sql_store.h"

namespace lathe::engine {
namespace {

// A copy reads for minutes, and waits while files are linked.
PostgresConnection::Options PatientOptions(const std::string& url) {
  return {.url = url,
          .statement_timeout = absl::ZeroDuration(),
          .lock_timeout = absl::Seconds(30),
          .idle_in_transaction_timeout = absl::ZeroDuration()};
}

template <typename Function>
auto Translated(const Function& function) -> decltype(function()) {
  try {
    return function();
  } catch (const pqxx::pqxx_exception& error) {
    return StatusOf(error);
  }
}

class PostgresView final : public DatabaseView {
 public:
  explicit PostgresView(const PostgresConnection::Options& options)
      : options_(options), connection_(options) {}

  absl::Status Begin() {
    RETURN_IF_ERROR(CheckSessions(connection_, options_));
    connection_.BeginSnapshot();
    ASSIGN_OR_RETURN(schema_, FindSchema(connection_));
    if (schema_.version == 0) {
      return absl::FailedPreconditionError("the database has no tables of Lathe");
    }
    return CheckReadable(schema_, OwnSchema());
  }

  std::string kind() const override { return "postgres"; }
  int64_t schema_version() const override { return schema_.version; }

  absl::StatusOr<StoredState> Load() override {
    return Translated([&]() -> absl::StatusOr<StoredState> {
      const bool has_indexes = HasOnlineIndexes(connection_, OwnSchema());
      return LoadState(connection_, absl::GetCurrentTimeNanos(), has_indexes);
    });
  }

  // All bodies are rows.
  absl::StatusOr<std::vector<std::string>> BodyFiles() override {
    return std::vector<std::string>();
  }

  absl::StatusOr<bool> HasObjectStore() override {
    return Translated(
        [&]() -> absl::StatusOr<bool> { return HasSecret(connection_, kObjectStoreId); });
  }

  absl::StatusOr<std::vector<std::string>> CopyTo(const std::filesystem::path& dir) override {
    return Translated([&] { return WriteTables(connection_, schema_.version, dir); });
  }

 private:
  const PostgresConnection::Options options_;
  PostgresConnection connection_;
  SchemaState schema_;
};

// Holds the lock under which engines make tables, and a transaction with the empty tables.
class PostgresRestore final : public DatabaseRestore {
 public:
  PostgresRestore(DatabaseCopy copy, const std::string& url)
      : copy_(std::move(copy)), connection_(PatientOptions(url)) {}

  absl::Status Begin() {
    RETURN_IF_ERROR(FindSchema(connection_).status());
    connection_.Begin();
    LockSchema(connection_);
    if (!HasNoTables(connection_)) {
      return absl::FailedPreconditionError(
          "the database has tables: restore into an empty database");
    }
    Schema schema = OwnSchema();
    schema.migrations = schema.migrations.first(static_cast<size_t>(copy_.schema_version));
    MakeSchema(connection_, schema);
    return CheckTables(connection_, copy_.dir);
  }

  absl::Status KeepAlive() override {
    return Translated([&] {
      connection_.Execute("SELECT 1");
      return absl::OkStatus();
    });
  }

  absl::Status Fill() override {
    return Translated([&] {
      RETURN_IF_ERROR(ReadTables(connection_, copy_.dir));
      RETURN_IF_ERROR(Commit());
      Analyze();
      return absl::OkStatus();
    });
  }

 private:
  absl::Status Commit() {
    try {
      connection_.Commit();
    } catch (const pqxx::in_doubt_error& error) {
      return WithDetail(
          absl::UnavailableError(absl::StrFormat("%s: it is unknown whether the database is filled",
                                                 StatusOf(error).message())),
          kOutcomeUnknown);
    }
    return absl::OkStatus();
  }

  // The server does so itself, later.
  void Analyze() {
    try {
      connection_.Execute("ANALYZE");
    } catch (const pqxx::pqxx_exception& error) {
      LogWarn("the restored database was not analyzed", {{"error", StatusOf(error).message()}});
    }
  }

  const DatabaseCopy copy_;
  PostgresConnection connection_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DatabaseView>> ViewPostgres(const std::string& url) {
  return Translated([&]() -> absl::StatusOr<std::unique_ptr<DatabaseView>> {
    auto view = std::make_unique<PostgresView>(PatientOptions(url));
    RETURN_IF_ERROR(view->Begin());
    return view;
  });
}

absl::StatusOr<std::unique_ptr<DatabaseRestore>> BeginPostgresRestore(const DatabaseCopy& copy,
                                                                      const std::string& url) {
  if (copy.schema_version > OwnSchema().version()) {
    return absl::FailedPreconditionError(
        absl::StrFormat("the backup has schema version %d, this lathe-engine knows version %d: "
                        "restore with the release that made it, or a later one",
                        copy.schema_version, OwnSchema().version()));
  }
  return Translated([&]() -> absl::StatusOr<std::unique_ptr<DatabaseRestore>> {
    auto restore = std::make_unique<PostgresRestore>(copy, url);
    RETURN_IF_ERROR(restore->Begin());
    return restore;
  });
}

}  // namespace lathe::engine
