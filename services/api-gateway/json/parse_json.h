// Small JSON bodies, strictly.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace lathe::gateway {

using Json = nlohmann::json;

inline constexpr int kMaxJsonDepth = 64;

// InvalidArgument otherwise, never quoting the body:
//   bad_json       not JSON or not UTF-8, with line, column and byte
//   too_deep       nested beyond kMaxJsonDepth
//   duplicate_key  with the JSON pointer
//   bad_number     an integer beyond 64 bits or a number beyond double, with the JSON pointer; NaN
//                  or Infinity, with line, column and byte
absl::StatusOr<Json> ParseJsonBody(std::string_view text);

// As above for a document that another parser has refused: finds out where. OK when nothing is
// wrong with it.
absl::Status ExplainBadJson(std::string_view text);

// One line; bytes that are no UTF-8 become U+FFFD.
std::string JsonText(const Json& value);

}  // namespace lathe::gateway
