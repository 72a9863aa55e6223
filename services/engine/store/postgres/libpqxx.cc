#include "services/engine/store/postgres/libpqxx.h"

#include <array>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "libs/common/strings/string_view.h"

namespace lathe::engine {
namespace {

// SQLSTATE prefixes from appendix A of the Postgres 15 manual: connection exceptions, operator
// intervention, a session ended while idle, a transaction ended while idle.
constexpr std::array<absl::string_view, 6> kLost = {"08",    "57P01", "57P02",
                                                    "57P03", "57P05", "25P03"};
constexpr std::array<absl::string_view, 2> kConflict = {"40001", "40P01"};
// Lock and statement time-outs, insufficient resources, I/O errors, a read-only server.
constexpr std::array<absl::string_view, 5> kPassing = {"55P03", "57014", "53", "58030", "25006"};

template <typename Error>
bool Is(const pqxx::pqxx_exception& error) {
  return dynamic_cast<const Error*>(&error) != nullptr;
}

template <size_t size>
bool HasPrefix(absl::string_view sqlstate, const std::array<absl::string_view, size>& prefixes) {
  for (const absl::string_view prefix : prefixes) {
    if (absl::StartsWith(sqlstate, prefix)) return true;
  }
  return false;
}

std::string TextOf(const pqxx::pqxx_exception& error) {
  const absl::string_view message = absl::StripAsciiWhitespace(error.base().what());
  const std::string line = absl::StrReplaceAll(message, {{"\n", " "}, {"\t", " "}});
  const auto* const refused = dynamic_cast<const pqxx::sql_error*>(&error);
  if (refused == nullptr || refused->sqlstate().empty()) return absl::StrCat("database: ", line);
  return absl::StrCat("database: ", line, " (code ", refused->sqlstate(), ")");
}

}  // namespace

PostgresFault FaultOf(const pqxx::pqxx_exception& error) {
  if (Is<pqxx::broken_connection>(error) || Is<pqxx::in_doubt_error>(error)) {
    return PostgresFault::kLost;
  }
  // libpqxx keeps no SQLSTATE in these two.
  if (Is<pqxx::serialization_failure>(error) || Is<pqxx::deadlock_detected>(error)) {
    return PostgresFault::kConflict;
  }
  const auto* const refused = dynamic_cast<const pqxx::sql_error*>(&error);
  return refused == nullptr ? PostgresFault::kOurs : FaultOf(refused->sqlstate());
}

PostgresFault FaultOf(std::string_view sqlstate) {
  const absl::string_view state = AbslView(sqlstate);
  if (HasPrefix(state, kLost)) return PostgresFault::kLost;
  if (HasPrefix(state, kConflict)) return PostgresFault::kConflict;
  if (HasPrefix(state, kPassing)) return PostgresFault::kPassing;
  return PostgresFault::kOurs;
}

absl::Status StatusOf(const pqxx::pqxx_exception& error) {
  const std::string text = TextOf(error);
  switch (FaultOf(error)) {
    case PostgresFault::kLost:
    case PostgresFault::kPassing:
      return absl::UnavailableError(text);
    case PostgresFault::kConflict:
      return absl::AbortedError(text);
    case PostgresFault::kOurs:
      break;
  }
  return absl::InternalError(text);
}

}  // namespace lathe::engine
