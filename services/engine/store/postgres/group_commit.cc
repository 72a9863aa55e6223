#include "services/engine/store/postgres/group_commit.h"

#include <libpq-fe.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/engine/store/postgres/text_codec.h"

namespace lathe::engine {
namespace {

constexpr int kBinary = 1;
// Number of statements that are sent before their results are read. More of them could fill the
// buffers of both sides.
constexpr size_t kMaxPending = 128;

[[noreturn]] void ThrowNoRows() { throw pqxx::usage_error("a group commit reads no rows"); }

}  // namespace

void GroupCommit::ClearResult::operator()(PGresult* result) const { PQclear(result); }

Query GroupCommit::Prepare(std::string_view sql) {
  auto found = statements_.find(sql);
  if (found == statements_.end()) {
    // libpqxx has the names that begin with s.
    auto statement = std::make_unique<GroupStatement>(*this, absl::StrCat("g", statements_.size()),
                                                      WithDollars(sql));
    found = statements_.emplace(std::string(sql), std::move(statement)).first;
  }
  return Query(*found->second);
}

void GroupCommit::Begin() {
  counts_.clear();
  if (PQenterPipelineMode(handle()) == 0) ThrowLost();
  Prepare("BEGIN").Run();
}

void GroupCommit::Finish() {
  Drain();
  if (PQexitPipelineMode(handle()) == 0) ThrowLost();
}

void GroupCommit::Commit() {
  try {
    if (PQenterPipelineMode(handle()) == 0) ThrowLost();
    Prepare("COMMIT").Run();
    Finish();
  } catch (const pqxx::broken_connection& error) {
    throw pqxx::in_doubt_error(error.what());
  }
}

void GroupCommit::Send(GroupStatement& statement) {
  // A full socket blocks. libpq reads what the server answers meanwhile.
  if (!sending_) sending_.emplace(connection_.policy_, absl::InfiniteFuture());
  if (!statement.is_prepared_) {
    if (PQsendPrepare(handle(), statement.name_.c_str(), statement.sql_.c_str(), 0, nullptr) == 0) {
      ThrowLost();
    }
    // A failure closes the connection, and the statement with it.
    statement.is_prepared_ = true;
    pending_runs_.push_back(false);
  }
  std::vector<const char*> values;
  std::vector<int> lengths;
  std::vector<int> formats;
  for (const GroupStatement::Value& value : statement.values_) {
    values.push_back(value.is_borrowed ? value.borrowed.data() : value.owned.c_str());
    const size_t length = value.is_borrowed ? value.borrowed.size() : value.owned.size();
    lengths.push_back(static_cast<int>(length));
    formats.push_back(value.is_binary ? kBinary : 0);
  }
  if (PQsendQueryPrepared(handle(), statement.name_.c_str(), static_cast<int>(values.size()),
                          values.data(), lengths.data(), formats.data(), kBinary) == 0) {
    ThrowLost();
  }
  pending_runs_.push_back(true);
}

GroupCommit::Result GroupCommit::Take() {
  // Most results arrive together.
  if (PQisBusy(handle()) == 0) return Result(PQgetResult(handle()));
  const ConnectionPolicy::Call marked(connection_.policy_, absl::InfiniteFuture());
  return Result(PQgetResult(handle()));
}

GroupCommit::Result GroupCommit::TakeOnly() {
  Result result = Take();
  if (!result) ThrowLost();
  while (Take()) {
  }
  return result;
}

void GroupCommit::Drain() {
  const bool is_sent = PQpipelineSync(handle()) != 0;
  sending_.reset();
  if (!is_sent) ThrowLost();
  std::optional<pqxx::sql_error> error;
  for (const bool is_run : std::exchange(pending_runs_, {})) {
    const Result result = TakeOnly();
    try {
      if (PQresultStatus(result.get()) == PGRES_PIPELINE_ABORTED) continue;
      Check(result.get());
      if (is_run) counts_.push_back(std::atoll(PQcmdTuples(result.get())));
    } catch (const pqxx::sql_error& found) {
      if (!error) error.emplace(found);
    }
  }
  const Result sync = Take();
  if (!sync || PQresultStatus(sync.get()) != PGRES_PIPELINE_SYNC) ThrowLost();
  if (error) throw *error;
}

void GroupCommit::Check(const PGresult* result) {
  const ExecStatusType status = PQresultStatus(result);
  if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK) {
    // The server answers a COMMIT with ROLLBACK if the transaction had already failed.
    if (std::string_view(PQcmdStatus(const_cast<PGresult*>(result))) == "ROLLBACK") {
      throw pqxx::sql_error("the transaction had failed before its commit");
    }
    return;
  }
  const char* const state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
  if (state == nullptr || PQstatus(handle()) == CONNECTION_BAD) ThrowLost();
  throw pqxx::sql_error(PQresultErrorMessage(result), "", state);
}

void GroupCommit::ThrowLost() { throw pqxx::broken_connection(connection_.policy_.LostReason()); }

void GroupStatement::Bind(int64_t value) { values_.push_back({.owned = absl::StrCat(value)}); }

void GroupStatement::Bind(double value) {
  values_.push_back({.owned = absl::StrFormat("%.17g", value)});
}

void GroupStatement::Bind(std::string_view text) {
  values_.push_back({.owned = EncodeText(text), .is_binary = true});
}

void GroupStatement::BindBytes(std::string_view bytes) {
  // libpq would bind a null pointer as NULL.
  if (bytes.data() == nullptr) bytes = "";
  values_.push_back({.borrowed = bytes, .is_borrowed = true, .is_binary = true});
}

int64_t GroupStatement::Run() {
  group_.Send(*this);
  if (group_.pending_runs_.size() >= kMaxPending) group_.Drain();
  return SqlConnection::kDeferred;
}

bool GroupStatement::Next() { ThrowNoRows(); }

std::string GroupStatement::Text() { ThrowNoRows(); }

std::string GroupStatement::Bytes() { ThrowNoRows(); }

int64_t GroupStatement::Int() { ThrowNoRows(); }

double GroupStatement::Real() { ThrowNoRows(); }

}  // namespace lathe::engine
