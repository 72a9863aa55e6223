// Texts that only this service's store can have signed.
#pragma once

#include <optional>
#include <string>

namespace lathe::engine {

// URL-safe: the text and its HMAC-SHA-256, both in base64.
std::string SignText(const std::string& secret, const std::string& text);

// The text of a token; unset when `secret` did not sign it.
std::optional<std::string> VerifySignedText(const std::string& secret, const std::string& token);

}  // namespace lathe::engine
