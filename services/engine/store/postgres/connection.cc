#include "services/engine/store/postgres/connection.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/engine/store/postgres/text_codec.h"

namespace lathe::engine {

using pqxx::prepare::make_dynamic_params;

std::string WithDollars(std::string_view sql) {
  std::string text;
  int highest = 0;
  for (size_t i = 0; i < sql.size(); ++i) {
    if (sql[i] != '?') {
      text += sql[i];
      continue;
    }
    int number = 0;
    for (; i + 1 < sql.size() && sql[i + 1] >= '0' && sql[i + 1] <= '9'; ++i) {
      number = 10 * number + (sql[i + 1] - '0');
    }
    if (number == 0) number = highest + 1;
    highest = std::max(highest, number);
    absl::StrAppend(&text, "$", number);
  }
  return text;
}

PostgresConnection::Session::Session(ConnectionPolicy& policy) : connection_base(policy) {
  try {
    init();
  } catch (...) {
    close();
    throw;
  }
  ForbidReconnects(*this);
}

PostgresConnection::PostgresConnection(const Options& options)
    : policy_(options), deadline_(options.deadline), session_(policy_) {
  Execute(policy_.Settings());
}

// Closes first, so that the end of an open transaction sends nothing.
PostgresConnection::~PostgresConnection() { session_.disconnect(); }

template <typename Call>
auto PostgresConnection::Guard(const Call& call) -> decltype(call()) {
  const ConnectionPolicy::Call marked(policy_, deadline_);
  try {
    return call();
  } catch (const pqxx::in_doubt_error&) {
    throw pqxx::in_doubt_error(policy_.LostReason());
  } catch (const pqxx::failure&) {
    if (session_.is_open()) throw;
    throw pqxx::broken_connection(policy_.LostReason());
  }
}

pqxx::transaction_base& PostgresConnection::transaction() {
  if (!transaction_) transaction_ = std::make_unique<pqxx::nontransaction>(session_);
  return *transaction_;
}

Query PostgresConnection::Prepare(std::string_view sql) {
  auto found = statements_.find(sql);
  if (found == statements_.end()) {
    const std::string name = absl::StrCat("s", statements_.size());
    session_.prepare(name, WithDollars(sql));
    auto statement = std::make_unique<PostgresStatement>(*this, name);
    found = statements_.emplace(std::string(sql), std::move(statement)).first;
  }
  return Query(*found->second);
}

void PostgresConnection::Execute(const std::string& sql) {
  Guard([&] { transaction().exec(sql); });
}

int64_t PostgresConnection::SessionPid() {
  return Guard([&] { return transaction().exec1("SELECT pg_backend_pid()")[0].as<int64_t>(); });
}

void PostgresConnection::Begin() {
  transaction_.reset();
  Guard([&] { transaction_ = std::make_unique<pqxx::work>(session_); });
}

void PostgresConnection::BeginSnapshot() {
  Begin();
  Execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY");
}

void PostgresConnection::Commit() {
  Guard([&] { transaction().commit(); });
  transaction_.reset();
}

void PostgresConnection::CopyOut(const std::string& table, const std::vector<std::string>& columns,
                                 const std::function<void(const std::string&)>& take) {
  Guard([&] {
    pqxx::stream_from reader(transaction(), table, columns.begin(), columns.end());
    std::string line;
    while (reader.get_raw_line(line)) {
      if (!line.empty() && line.back() == '\n') line.pop_back();
      take(line);
    }
    reader.complete();
  });
}

void PostgresConnection::CopyIn(const std::string& table, const std::vector<std::string>& columns,
                                const std::function<bool(std::string&)>& next) {
  Guard([&] {
// The newer stream_to takes no raw lines.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    pqxx::tablewriter writer(transaction(), table, columns.begin(), columns.end());
#pragma GCC diagnostic pop
    std::string line;
    while (next(line)) writer.write_raw_line(line);
    writer.complete();
  });
}

void PostgresStatement::Bind(int64_t value) { texts_.push_back(absl::StrCat(value)); }

void PostgresStatement::Bind(double value) { texts_.push_back(absl::StrFormat("%.17g", value)); }

void PostgresStatement::Bind(std::string_view text) { texts_.push_back(EncodeText(text)); }

void PostgresStatement::BindBytes(std::string_view bytes) {
  if (bytes_) throw pqxx::usage_error("a second value of bytes in a statement");
  bytes_.emplace(bytes.data(), bytes.size());
  num_before_bytes_ = texts_.size();
}

pqxx::result PostgresStatement::Execute() {
  return connection_.Guard([&] {
    pqxx::transaction_base& transaction = connection_.transaction();
    if (!bytes_) return transaction.exec_prepared(name_, make_dynamic_params(texts_));
    const auto bytes_at = texts_.begin() + static_cast<std::ptrdiff_t>(num_before_bytes_);
    return transaction.exec_prepared(name_, make_dynamic_params(texts_.begin(), bytes_at), *bytes_,
                                     make_dynamic_params(bytes_at, texts_.end()));
  });
}

int64_t PostgresStatement::Run() { return static_cast<int64_t>(Execute().affected_rows()); }

bool PostgresStatement::Next() {
  if (!rows_) rows_ = Execute();
  next_column_ = 0;
  if (next_row_ >= rows_->size()) return false;
  row_.emplace((*rows_)[next_row_++]);
  return true;
}

pqxx::field PostgresStatement::NextField() { return (*row_)[next_column_++]; }

std::string PostgresStatement::Text() {
  const pqxx::field field = NextField();
  return DecodeText({field.c_str(), field.size()});
}

std::string PostgresStatement::Bytes() { return pqxx::binarystring(NextField()).str(); }

int64_t PostgresStatement::Int() {
  const pqxx::field field = NextField();
  const std::string_view text(field.c_str(), field.size());
  // Booleans are numbers in SQLite.
  if (text == "t" || text == "f") return text == "t" ? 1 : 0;
  return field.as<int64_t>();
}

double PostgresStatement::Real() { return NextField().as<double>(); }

void PostgresStatement::Reset() {
  texts_.clear();
  bytes_.reset();
  row_.reset();
  rows_.reset();
  next_row_ = 0;
}

}  // namespace lathe::engine
