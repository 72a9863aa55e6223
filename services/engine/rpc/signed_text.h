// Texts signed with a secret of the store.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "libs/common/digest/sha256.h"

namespace lathe::engine {

// Returns a URL-safe token: the text and its HMAC-SHA-256, both in base64.
inline std::string SignText(const std::string& secret, const std::string& text) {
  return absl::StrCat(absl::WebSafeBase64Escape(text), ".",
                      absl::WebSafeBase64Escape(HmacSha256(secret, text)));
}

// Returns the text in the token; nullopt if it was not signed with `secret`.
inline std::optional<std::string> VerifySignedText(const std::string& secret,
                                                   const std::string& token) {
  const std::vector<std::string> parts = absl::StrSplit(token, '.');
  std::string text;
  std::string signature;
  if (parts.size() != 2 || !absl::WebSafeBase64Unescape(parts[0], &text) ||
      !absl::WebSafeBase64Unescape(parts[1], &signature) ||
      !EqualInConstantTime(signature, HmacSha256(secret, text))) {
    return std::nullopt;
  }
  return text;
}

}  // namespace lathe::engine
