// The form of API keys: tml-{key id}_{secret}_{checksum}.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lathe {

// A generated key. The SDK requires the prefix tml-. The secret has 178 random bits in base62. The
// checksum is the CRC-32 of everything before it: it lets scanners find leaked keys, and detects
// typing errors without a store lookup.
struct ApiKeyText {
  std::string key_id;
  // The whole key, which its owner sees only once.
  std::string text;
};

ApiKeyText MakeApiKey();

// Returns the key id of a well-formed key, nullopt for any other text.
std::optional<std::string> ParseKeyId(std::string_view text);

}  // namespace lathe
