// Texts signed with a secret of the store.
#pragma once

#include <optional>
#include <string>

namespace lathe::engine {

// Returns a URL-safe token: the text and its HMAC-SHA-256, both in base64.
std::string SignText(const std::string& secret, const std::string& text);

// Returns the text in the token; nullopt if it was not signed with `secret`.
std::optional<std::string> VerifySignedText(const std::string& secret, const std::string& token);

}  // namespace lathe::engine
