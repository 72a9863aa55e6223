// Roles of the people who use the dashboard.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "services/engine/auth/scope.h"

namespace lathe::engine {

// Each role may do what the one before it may. An operator is an administrator who also sees the
// users of all tenants.
enum class UserRole { kViewer, kMember, kAdmin, kOperator };

// Returns viewer, member, admin or operator.
std::string UserRoleWord(UserRole role);
// Returns InvalidArgument that names `field`, the word and the known ones.
absl::StatusOr<UserRole> ParseUserRole(std::string_view word, std::string_view field);

Scopes ScopesOf(UserRole role);
// Returns the role that says best what a key with these scopes may do.
UserRole RoleOf(Scopes scopes);

}  // namespace lathe::engine
