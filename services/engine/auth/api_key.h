// The form of API keys: tml-{key id}_{secret}_{checksum}.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lathe::engine {

// The SDK insists on the prefix tml-. The secret has 178 random bits in base62; the checksum is the
// CRC-32 of everything before it, so that scanners find leaked keys and typing errors show without
// asking the store.
struct ApiKeyText {
  std::string key_id;
  // The whole key, as shown once to its owner.
  std::string text;
};

ApiKeyText MakeApiKey();

// The key id of a well-formed key; nullopt for anything else.
std::optional<std::string> ParseKeyId(std::string_view text);

}  // namespace lathe::engine
