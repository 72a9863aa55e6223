// Reads small JSON documents (model directories, manifests) with errors as statuses.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace lathe {

using Json = nlohmann::json;

// Returns InvalidArgument with `what` (for example a file name) and the position if `text` is not
// JSON.
absl::StatusOr<Json> ParseJson(std::string_view text, std::string_view what);

// Returns NotFound when there is no such file, and otherwise the errors of ParseJson.
absl::StatusOr<Json> ReadJsonFile(const std::filesystem::path& path);

// Returns the member `key` of `object`. Returns InvalidArgument, naming the key, when it is missing
// or has another type. JSON null counts as missing.
absl::StatusOr<std::string> JsonString(const Json& object, const std::string& key);
absl::StatusOr<int64_t> JsonInt(const Json& object, const std::string& key);
absl::StatusOr<double> JsonNumber(const Json& object, const std::string& key);
absl::StatusOr<bool> JsonBool(const Json& object, const std::string& key);

// Returns true if `object` has a member `key` that is not null.
bool JsonHas(const Json& object, const std::string& key);

// Writes `value` on one line. Replaces bytes that are not UTF-8 by U+FFFD, so that it never fails.
std::string ToJsonText(const Json& value);

}  // namespace lathe
