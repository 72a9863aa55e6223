// Small JSON documents (model folders, manifests) with errors as statuses.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace lathe {

using Json = nlohmann::json;

// InvalidArgument with `what` (a file name, say) and the position when `text` is not JSON.
absl::StatusOr<Json> ParseJson(std::string_view text, std::string_view what);

// NotFound when there is no such file, else as ParseJson.
absl::StatusOr<Json> ReadJsonFile(const std::filesystem::path& path);

// The member `key` of `object`. InvalidArgument naming the key when it is missing or of another
// type; JSON null counts as missing.
absl::StatusOr<std::string> JsonString(const Json& object, const std::string& key);
absl::StatusOr<int64_t> JsonInt(const Json& object, const std::string& key);
absl::StatusOr<double> JsonNumber(const Json& object, const std::string& key);
absl::StatusOr<bool> JsonBool(const Json& object, const std::string& key);

// Whether `object` has a member `key` that is not null.
bool JsonHas(const Json& object, const std::string& key);

// On one line; bytes that are no UTF-8 become U+FFFD, so that it never fails.
std::string ToJsonText(const Json& value);

}  // namespace lathe
