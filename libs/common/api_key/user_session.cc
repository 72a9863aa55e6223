#include "libs/common/api_key/user_session.h"

#include <algorithm>

#include "libs/common/random/random_id.h"

namespace lathe {
namespace {

constexpr std::string_view kSessionPrefix = "lathe-session-";
constexpr size_t kSessionSecretLength = 43;  // 5.95 bits each

bool IsSecretCharacter(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

}  // namespace

std::string MakeUserSession() {
  return std::string(kSessionPrefix) + RandomBase62(kSessionSecretLength);
}

bool IsUserSession(std::string_view text) {
  return text.size() == kSessionPrefix.size() + kSessionSecretLength &&
         text.starts_with(kSessionPrefix) &&
         std::all_of(text.begin() + kSessionPrefix.size(), text.end(), IsSecretCharacter);
}

}  // namespace lathe
