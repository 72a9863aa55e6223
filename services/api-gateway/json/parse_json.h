// JSON values of responses, and what is wrong with JSON of requests.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace lathe::gateway {

using Json = nlohmann::json;
// Keeps members in the order in which they were added.
using OrderedJson = nlohmann::ordered_json;

inline constexpr int kMaxJsonDepth = 64;

// Most values of a JSON text. A list of numbers that its reader packs counts as one. Parsers take
// up to a hundred bytes for each value, however short it is.
inline constexpr size_t kMaxJsonValues = 512 << 10;

// Counts values by commas, colons and brackets outside strings, before a parser builds anything of
// them. `text`, nested `outer_depth` levels deep, need not be JSON. Errors are InvalidArgument
// `too_many_values` and `too_deep`.
absl::Status CheckJsonSize(std::string_view text, int outer_depth = 0);
absl::Status TooManyValues();

// Checks a body. Errors are InvalidArgument, with one of these codes, and never quote a value of
// the body:
//   bad_json       not JSON or not UTF-8, with line, column and byte
//   too_deep       nested beyond kMaxJsonDepth
//   duplicate_key  with the JSON pointer
//   bad_number     an integer beyond 64 bits or a number beyond double, with the JSON pointer; NaN
//                  or Infinity, with line, column and byte
absl::Status CheckJson(std::string_view text);

// Returns the error of CheckJson for a text that another parser has refused, or `bad_json`.
absl::Status NotJson(std::string_view text);

// Writes `value` on one line. Bytes that are not UTF-8 become U+FFFD.
std::string JsonText(const Json& value);

}  // namespace lathe::gateway
