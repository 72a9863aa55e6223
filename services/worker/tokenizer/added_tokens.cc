#include "services/worker/tokenizer/added_tokens.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "libs/common/status_macros.h"
#include "services/worker/tokenizer/component.h"
#include "services/worker/tokenizer/unicode.h"

namespace lathe::worker {
namespace {

// Limits the cost of searching for a token at each position.
constexpr size_t kMaxContentBytes = 1024;

absl::StatusOr<AddedToken> ReadToken(const Json& json, const std::string& where) {
  const Component component = {.json = &json, .where = where, .type = ""};
  if (!json.is_object()) return component.Wrong("is not an object");
  RETURN_IF_ERROR(component.CheckFields(
      {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"}));
  if (!JsonHas(json, "id")) return component.Wrong("id is missing");
  AddedToken token;
  ASSIGN_OR_RETURN(token.id, ReadTokenId(json.at("id")));
  ASSIGN_OR_RETURN(token.content, component.String("content"));
  if (token.content.size() > kMaxContentBytes) {
    return component.Wrong(absl::StrFormat("content has %d bytes, limit is %d",
                                           token.content.size(), kMaxContentBytes));
  }
  ASSIGN_OR_RETURN(token.single_word, component.BoolOr("single_word", false));
  ASSIGN_OR_RETURN(token.lstrip, component.BoolOr("lstrip", false));
  ASSIGN_OR_RETURN(token.rstrip, component.BoolOr("rstrip", false));
  ASSIGN_OR_RETURN(token.special, component.BoolOr("special", false));
  ASSIGN_OR_RETURN(token.normalized, component.BoolOr("normalized", !token.special));
  return token;
}

bool IsInsideWord(std::string_view text, const TextRange& range) {
  size_t before = range.begin, behind = range.end;
  if (range.begin > 0 && IsWord(PreviousCharacter(text, before))) return true;
  return range.end < text.size() && IsWord(NextCharacter(text, behind));
}

size_t WithSpaceBefore(std::string_view text, size_t begin, size_t earliest) {
  while (begin > earliest) {
    size_t previous = begin;
    if (!IsWhiteSpace(PreviousCharacter(text, previous))) break;
    begin = previous;
  }
  return begin;
}

size_t WithSpaceBehind(std::string_view text, size_t end) {
  while (end < text.size()) {
    size_t next = end;
    if (!IsWhiteSpace(NextCharacter(text, next))) break;
    end = next;
  }
  return end;
}

}  // namespace

absl::StatusOr<std::vector<AddedToken>> ReadAddedTokens(const Json& root) {
  std::vector<AddedToken> tokens;
  if (!JsonHas(root, "added_tokens")) return tokens;
  const Json& list = root.at("added_tokens");
  if (!list.is_array()) return absl::InvalidArgumentError("added_tokens is not an array");
  for (const Json& json : list) {
    ASSIGN_OR_RETURN(AddedToken token,
                     ReadToken(json, absl::StrFormat("added_tokens[%d]", tokens.size())));
    tokens.push_back(std::move(token));
  }
  return tokens;
}

void AddedTokenFinder::Add(std::string_view content, const AddedToken& token) {
  uint64_t node = 0;
  for (const char byte : content) {
    const auto [child, is_new] =
        children_.try_emplace((node << 8) | static_cast<unsigned char>(byte),
                              static_cast<int32_t>(token_of_node_.size()));
    if (is_new) token_of_node_.push_back(-1);
    node = child->second;
  }
  if (token_of_node_[node] >= 0) return;
  token_of_node_[node] = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(token);
}

int32_t AddedTokenFinder::LongestAt(std::string_view text, size_t position, size_t& end) const {
  int32_t longest = -1;
  uint64_t node = 0;
  for (size_t i = position; i < text.size(); ++i) {
    const auto child = children_.find((node << 8) | static_cast<unsigned char>(text[i]));
    if (child == children_.end()) break;
    node = child->second;
    if (token_of_node_[node] < 0) continue;
    longest = token_of_node_[node];
    end = i + 1;
  }
  return longest;
}

std::vector<AddedTokenFinder::Section> AddedTokenFinder::Cut(std::string_view text) const {
  std::vector<Section> sections;
  size_t done = 0;
  for (size_t position = 0; position < text.size() && !tokens_.empty();) {
    size_t end = 0;
    const int32_t found = LongestAt(text, position, end);
    if (found < 0) {
      ++position;
      continue;
    }
    const AddedToken& token = tokens_[found];
    TextRange range = {position, end};
    position = end;
    if (token.single_word && IsInsideWord(text, range)) continue;
    if (token.lstrip) range.begin = WithSpaceBefore(text, range.begin, done);
    if (token.rstrip) range.end = WithSpaceBehind(text, range.end);
    if (done < range.begin) sections.push_back({{done, range.begin}, nullptr});
    sections.push_back({range, &token});
    done = range.end;
  }
  if (done < text.size()) sections.push_back({{done, text.size()}, nullptr});
  return sections;
}

}  // namespace lathe::worker
