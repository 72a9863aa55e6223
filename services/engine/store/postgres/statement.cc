#include <endian.h>

#include <bit>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/engine/store/postgres/connection.h"
#include "services/engine/store/postgres/text_codec.h"

namespace lathe::engine {
namespace {

template <typename Integer>
Integer Load(std::string_view bytes) {
  Integer value = 0;
  std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

}  // namespace

void PostgresStatement::Bind(int64_t value) { values_.push_back({.owned = absl::StrCat(value)}); }

void PostgresStatement::Bind(double value) {
  values_.push_back({.owned = absl::StrFormat("%.17g", value)});
}

void PostgresStatement::Bind(std::string_view text) {
  values_.push_back({.owned = EncodeText(text), .is_binary = true});
}

void PostgresStatement::BindBytes(std::string_view bytes) {
  // libpq would bind a null pointer as NULL.
  if (bytes.data() == nullptr) bytes = "";
  values_.push_back({.borrowed = bytes, .is_borrowed = true, .is_binary = true});
}

int64_t PostgresStatement::Run() {
  if (connection_.in_pipeline_) {
    connection_.Send(*this);
    return SqlConnection::kDeferred;
  }
  const Result result = connection_.Call(*this);
  return std::atoll(PQcmdTuples(result.get()));
}

bool PostgresStatement::Next() {
  if (!result_) result_ = connection_.Call(*this);
  column_ = 0;
  return ++row_ < PQntuples(result_.get());
}

std::string_view PostgresStatement::NextColumn() {
  const int column = column_++;
  return {PQgetvalue(result_.get(), row_, column),
          static_cast<size_t>(PQgetlength(result_.get(), row_, column))};
}

std::string PostgresStatement::Text() { return DecodeText(NextColumn()); }

std::string PostgresStatement::Bytes() { return std::string(NextColumn()); }

// Accepts bool, int4 and int8, in network byte order.
int64_t PostgresStatement::Int() {
  const std::string_view bytes = NextColumn();
  if (bytes.size() == sizeof(int64_t)) {
    return static_cast<int64_t>(be64toh(Load<uint64_t>(bytes)));
  }
  if (bytes.size() == sizeof(int32_t)) {
    return static_cast<int32_t>(be32toh(Load<uint32_t>(bytes)));
  }
  if (bytes.size() == 1) return bytes[0];
  throw PostgresError(PostgresFault::kOurs, "",
                      absl::StrCat("a number has ", bytes.size(), " bytes, expected 1, 4 or 8"));
}

double PostgresStatement::Real() {
  const std::string_view bytes = NextColumn();
  if (bytes.size() != sizeof(double)) {
    throw PostgresError(PostgresFault::kOurs, "",
                        absl::StrCat("a real number has ", bytes.size(), " bytes, expected 8"));
  }
  return std::bit_cast<double>(be64toh(Load<uint64_t>(bytes)));
}

void PostgresStatement::Reset() {
  values_.clear();
  result_.reset();
  row_ = -1;
}

}  // namespace lathe::engine
