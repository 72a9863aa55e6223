// The role map: which role a user has by the claims of the identity provider.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/engine/auth/user_role.h"

namespace lathe::engine {

// A person as an identity provider describes them. A gateway has verified it.
struct Identity {
  std::string issuer;
  std::string subject;
  std::string name;
  std::string email;
  bool is_email_verified = false;
  std::map<std::string, std::vector<std::string>> claims;
};

// One line of the map: who has `value` among the values of `claim` gets `role` in `tenant`.
struct RoleRule {
  std::string claim;
  std::string value;
  UserRole role = UserRole::kViewer;
  std::string tenant;
};

// The first line that fits decides. The claims `email` and `email_domain` follow from the e-mail
// address, and exist only while the provider calls it verified.
class RoleMap {
 public:
  // Each line is CLAIM=VALUE:ROLE or CLAIM=VALUE:ROLE@TENANT; without a tenant, it is `default`.
  // The value * fits every value. Returns InvalidArgument that names the line.
  static absl::StatusOr<RoleMap> Parse(const std::vector<std::string>& lines);

  // Returns null if no line fits.
  const RoleRule* Find(const Identity& identity) const;

 private:
  std::vector<RoleRule> rules_;
};

}  // namespace lathe::engine
