#include "services/engine/auth/role_map.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "libs/common/errors.h"
#include "libs/common/status_macros.h"

namespace lathe::engine {
namespace {

constexpr char kField[] = "role_map";
constexpr size_t kMaxLines = 1000;
constexpr char kDefaultTenant[] = "default";

absl::Status BadLine(const std::string& line) {
  return WithDetail(absl::InvalidArgumentError(absl::StrFormat(
                        "role_map has the line '%s', expected CLAIM=VALUE:ROLE[@TENANT]", line)),
                    "configuration", kField);
}

absl::StatusOr<RoleRule> ParseLine(const std::string& line) {
  const size_t equals = line.find('=');
  // A value may have colons, a role and a tenant have none.
  const size_t colon = line.rfind(':');
  if (equals == line.npos || equals == 0 || colon == line.npos || colon <= equals + 1) {
    return BadLine(line);
  }
  RoleRule rule;
  rule.claim = line.substr(0, equals);
  rule.value = line.substr(equals + 1, colon - equals - 1);
  std::string role = line.substr(colon + 1);
  const size_t at = role.find('@');
  rule.tenant = at == role.npos ? kDefaultTenant : role.substr(at + 1);
  if (rule.tenant.empty()) return BadLine(line);
  ASSIGN_OR_RETURN(rule.role, ParseUserRole(role.substr(0, at), kField));
  if (rule.claim == "email" || rule.claim == "email_domain") {
    rule.value = absl::AsciiStrToLower(rule.value);
  }
  return rule;
}

bool HasValue(const std::vector<std::string>& values, const std::string& wanted) {
  if (wanted == "*") return !values.empty();
  return std::find(values.begin(), values.end(), wanted) != values.end();
}

// Returns the values of a claim that a rule may look at.
std::vector<std::string> ValuesOf(const Identity& identity, const std::string& claim) {
  if (claim == "email" || claim == "email_domain") {
    const std::string email = absl::AsciiStrToLower(identity.email);
    const size_t at = email.rfind('@');
    if (!identity.is_email_verified || at == email.npos) return {};
    return {claim == "email" ? email : email.substr(at + 1)};
  }
  const auto found = identity.claims.find(claim);
  return found == identity.claims.end() ? std::vector<std::string>() : found->second;
}

}  // namespace

absl::StatusOr<RoleMap> RoleMap::Parse(const std::vector<std::string>& lines) {
  if (lines.size() > kMaxLines) {
    return WithDetail(absl::InvalidArgumentError(absl::StrFormat(
                          "role_map has %d lines, limit is %d", lines.size(), kMaxLines)),
                      "configuration", kField);
  }
  RoleMap map;
  for (const std::string& line : lines) {
    ASSIGN_OR_RETURN(RoleRule rule, ParseLine(line));
    map.rules_.push_back(std::move(rule));
  }
  return map;
}

const RoleRule* RoleMap::Find(const Identity& identity) const {
  for (const RoleRule& rule : rules_) {
    if (HasValue(ValuesOf(identity, rule.claim), rule.value)) return &rule;
  }
  return nullptr;
}

}  // namespace lathe::engine
