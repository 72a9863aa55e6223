#include "services/engine/store/sql/metadata_codec.h"

#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "libs/common/strings/string_view.h"

namespace lathe::engine {
namespace {

std::optional<std::string> TakeText(std::string_view& rest) {
  const size_t colon = rest.find(':');
  size_t size = 0;
  if (colon == std::string_view::npos ||
      !absl::SimpleAtoi(AbslView(rest.substr(0, colon)), &size) || size > rest.size() - colon - 1) {
    return std::nullopt;
  }
  std::string text(rest.substr(colon + 1, size));
  rest.remove_prefix(colon + 1 + size);
  return text;
}

}  // namespace

std::string EncodeMetadata(const Metadata& metadata) {
  std::string text;
  for (const auto& [name, value] : metadata) {
    absl::StrAppend(&text, name.size(), ":", name, value.size(), ":", value);
  }
  return text;
}

Metadata DecodeMetadata(std::string_view text) {
  Metadata metadata;
  while (!text.empty()) {
    std::optional<std::string> name = TakeText(text);
    std::optional<std::string> value = TakeText(text);
    if (!name || !value) break;
    metadata.emplace_back(*std::move(name), *std::move(value));
  }
  return metadata;
}

std::string EncodeWords(const std::vector<std::string>& words) { return absl::StrJoin(words, ","); }

std::vector<std::string> DecodeWords(std::string_view text) {
  return absl::StrSplit(AbslView(text), ',', absl::SkipEmpty());
}

}  // namespace lathe::engine
