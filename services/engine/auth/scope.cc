#include "services/engine/auth/scope.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_format.h"
#include "libs/common/errors.h"

namespace lathe::engine {
namespace {

struct NamedScope {
  const char* word;
  Scope scope;
};

constexpr std::array<NamedScope, 6> kScopes = {{{"train", Scope::kTrain},
                                                {"sample", Scope::kSample},
                                                {"read", Scope::kRead},
                                                {"checkpoints:write", Scope::kCheckpointsWrite},
                                                {"admin", Scope::kAdmin},
                                                {"operator", Scope::kOperator}}};

}  // namespace

std::vector<std::string> Scopes::Words() const {
  std::vector<std::string> words;
  for (const NamedScope& entry : kScopes) {
    if ((bits_ & static_cast<uint32_t>(entry.scope)) != 0) words.emplace_back(entry.word);
  }
  return words;
}

absl::StatusOr<Scopes> Scopes::Parse(const std::vector<std::string>& words) {
  Scopes scopes;
  for (const std::string& word : words) {
    const auto found = std::find_if(kScopes.begin(), kScopes.end(),
                                    [&](const NamedScope& entry) { return entry.word == word; });
    if (found == kScopes.end()) {
      return WithDetail(
          absl::InvalidArgumentError(absl::StrFormat(
              "scope is '%s', allowed are train, sample, read, checkpoints:write, admin, operator",
              word)),
          "invalid_field", "scopes");
    }
    scopes = scopes | found->scope;
  }
  return scopes;
}

}  // namespace lathe::engine
