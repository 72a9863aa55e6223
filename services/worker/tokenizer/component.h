// Reads the components of a tokenizer.json: objects with a "type", alone or in sequences.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "libs/common/json/json.h"

namespace lathe::worker {

inline constexpr int64_t kMaxTokenId = int64_t{1} << 24;  // limits memory if an id is broken

// One component of a stage. `json` must outlive it.
struct Component {
  const Json* json;
  std::string where;  // for error messages, like "pre_tokenizer Split"
  std::string type;

  // Returns InvalidArgument naming the first field that is not in `known`. Ignoring such a field
  // could change the result.
  absl::Status CheckFields(std::initializer_list<std::string_view> known) const;
  absl::Status NotSupported() const;
  absl::Status Wrong(const std::string& problem) const;

  // Return a field's value. InvalidArgument names component and field if the field is missing or
  // has another type.
  absl::StatusOr<bool> Bool(const std::string& field) const;
  absl::StatusOr<std::string> String(const std::string& field) const;
  absl::StatusOr<char32_t> Character(const std::string& field) const;
  absl::StatusOr<int64_t> Count(const std::string& field) const;
  absl::StatusOr<const Json*> Array(const std::string& field) const;
  // Return `otherwise` if the field is missing or null.
  absl::StatusOr<bool> BoolOr(const std::string& field, bool otherwise) const;
  absl::StatusOr<std::string> StringOr(const std::string& field, std::string otherwise) const;
};

// Returns the components of stage `stage` of `root` in order. Nested sequences are flattened; their
// components are in field `parts`. Empty if the stage is missing or null.
absl::StatusOr<std::vector<Component>> ReadComponents(const Json& root, const std::string& stage,
                                                      const std::string& parts);

// Parses a token id. InvalidArgument if it is not an integer in [0, kMaxTokenId).
absl::StatusOr<int32_t> ReadTokenId(const Json& id);

}  // namespace lathe::worker
