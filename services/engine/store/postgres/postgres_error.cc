#include "services/engine/store/postgres/postgres_error.h"

#include <array>

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

template <size_t size>
bool HasPrefix(absl::string_view sqlstate, const std::array<absl::string_view, size>& prefixes) {
  for (const absl::string_view prefix : prefixes) {
    if (absl::StartsWith(sqlstate, prefix)) return true;
  }
  return false;
}

absl::Status StatusOf(PostgresFault fault, const std::string& text) {
  switch (fault) {
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

std::string TextOf(absl::string_view sqlstate, absl::string_view message) {
  const std::string line =
      absl::StrReplaceAll(absl::StripAsciiWhitespace(message), {{"\n", " "}, {"\t", " "}});
  if (sqlstate.empty()) return absl::StrCat("database: ", line);
  return absl::StrCat("database: ", line, " (code ", sqlstate, ")");
}

}  // namespace

PostgresFault FaultOf(std::string_view sqlstate) {
  const absl::string_view state = AbslView(sqlstate);
  if (state.empty() || HasPrefix(state, kLost)) return PostgresFault::kLost;
  if (HasPrefix(state, kConflict)) return PostgresFault::kConflict;
  if (HasPrefix(state, kPassing)) return PostgresFault::kPassing;
  return PostgresFault::kOurs;
}

PostgresError::PostgresError(PostgresFault fault, std::string_view sqlstate,
                             std::string_view message)
    : fault_(fault),
      text_(TextOf(AbslView(sqlstate), AbslView(message))),
      status_(StatusOf(fault, text_)) {}

}  // namespace lathe::engine
