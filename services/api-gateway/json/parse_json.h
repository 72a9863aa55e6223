// Strict parser for small JSON bodies.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace lathe::gateway {

using Json = nlohmann::json;
// Keeps members in the order in which they were added.
using OrderedJson = nlohmann::ordered_json;

inline constexpr int kMaxJsonDepth = 64;

// Parses `text`. Errors are InvalidArgument, with one of these codes, and never quote a value of
// the body:
//   bad_json       not JSON or not UTF-8, with line, column and byte
//   too_deep       nested beyond kMaxJsonDepth
//   duplicate_key  with the JSON pointer
//   bad_number     an integer beyond 64 bits or a number beyond double, with the JSON pointer; NaN
//                  or Infinity, with line, column and byte
absl::StatusOr<Json> ParseJsonBody(std::string_view text);

// Finds the error in a document that another parser has refused. Returns the same errors as
// ParseJsonBody, or OK if it finds none.
absl::Status ExplainBadJson(std::string_view text);

// Writes `value` on one line. Bytes that are not UTF-8 become U+FFFD.
std::string JsonText(const Json& value);

}  // namespace lathe::gateway
