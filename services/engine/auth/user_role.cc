#include "services/engine/auth/user_role.h"

#include <array>
#include <utility>

#include "absl/strings/str_format.h"
#include "libs/common/errors.h"

namespace lathe::engine {
namespace {

constexpr size_t kMaxQuotedRoleBytes = 64;
constexpr std::array<std::pair<std::string_view, UserRole>, 4> kRoles = {
    {{"viewer", UserRole::kViewer},
     {"member", UserRole::kMember},
     {"admin", UserRole::kAdmin},
     {"operator", UserRole::kOperator}}};

}  // namespace

std::string UserRoleWord(UserRole role) {
  return std::string(kRoles[static_cast<size_t>(role)].first);
}

absl::StatusOr<UserRole> ParseUserRole(std::string_view word, std::string_view field) {
  for (const auto& [known, role] : kRoles) {
    if (known == word) return role;
  }
  return WithDetail(absl::InvalidArgumentError(absl::StrFormat(
                        "%s is '%s', expected viewer, member, admin or operator",
                        std::string(field), std::string(word.substr(0, kMaxQuotedRoleBytes)))),
                    "invalid_field", field);
}

Scopes ScopesOf(UserRole role) {
  switch (role) {
    case UserRole::kViewer:
      return Scope::kRead;
    case UserRole::kMember:
      return Scope::kTrain | Scope::kSample | Scopes(Scope::kRead) |
             Scopes(Scope::kCheckpointsWrite);
    case UserRole::kAdmin:
      return Scope::kAdmin;
    case UserRole::kOperator:
      return Scope::kOperator;
  }
  return {};
}

UserRole RoleOf(Scopes scopes) {
  if (scopes.HasAny(Scope::kOperator)) return UserRole::kOperator;
  if (scopes.HasAny(Scope::kAdmin)) return UserRole::kAdmin;
  const bool may_change =
      scopes.HasAny(Scope::kTrain | Scope::kSample | Scopes(Scope::kCheckpointsWrite));
  return may_change ? UserRole::kMember : UserRole::kViewer;
}

}  // namespace lathe::engine
