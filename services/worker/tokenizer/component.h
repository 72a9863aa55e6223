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

inline constexpr int64_t kMaxTokenId = int64_t{1} << 24;  // a broken id must not fill the memory

// One component, its type known. `json` must outlive it.
struct Component {
  const Json* json;
  std::string where;  // for messages: "pre_tokenizer Split"
  std::string type;

  // InvalidArgument naming the first field that is none of `known`: it would change the result.
  absl::Status CheckFields(std::initializer_list<std::string_view> known) const;
  absl::Status NotSupported() const;
  absl::Status Wrong(const std::string& problem) const;

  // InvalidArgument naming component and field when it is missing or of another type.
  absl::StatusOr<bool> Bool(const std::string& field) const;
  absl::StatusOr<std::string> String(const std::string& field) const;
  absl::StatusOr<char32_t> Character(const std::string& field) const;
  absl::StatusOr<int64_t> Count(const std::string& field) const;
  absl::StatusOr<const Json*> Array(const std::string& field) const;
  // `otherwise` when the field is missing or null.
  absl::StatusOr<bool> BoolOr(const std::string& field, bool otherwise) const;
  absl::StatusOr<std::string> StringOr(const std::string& field, std::string otherwise) const;
};

// The components of stage `stage` of `root` in their order, sequences (whose parts are in field
// `parts`) opened however deep they are. None when the stage is missing or null.
absl::StatusOr<std::vector<Component>> ReadComponents(const Json& root, const std::string& stage,
                                                      const std::string& parts);

// `id` as a token's id. InvalidArgument when it is no integer in [0, kMaxTokenId).
absl::StatusOr<int32_t> ReadTokenId(const Json& id);

}  // namespace lathe::worker
