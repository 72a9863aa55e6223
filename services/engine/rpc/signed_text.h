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

// Signs texts of one purpose with HMAC-SHA-256. Each purpose has a key of its own, derived from the
// secret, so a token of one purpose never verifies for another. Thread-safe.
class TextSigner {
 public:
  TextSigner(const std::string& secret, const std::string& purpose)
      : key_(HmacSha256(secret, absl::StrCat("lathe signed text\n", purpose))) {}

  // Returns a URL-safe token: the text and its signature, both in base64.
  std::string Sign(const std::string& text) const {
    return absl::StrCat(absl::WebSafeBase64Escape(text), ".",
                        absl::WebSafeBase64Escape(HmacSha256(key_, text)));
  }

  // Returns the text in the token; nullopt if this signer did not sign it.
  std::optional<std::string> Verify(const std::string& token) const {
    const std::vector<std::string> parts = absl::StrSplit(token, '.');
    std::string text;
    std::string signature;
    if (parts.size() != 2 || !absl::WebSafeBase64Unescape(parts[0], &text) ||
        !absl::WebSafeBase64Unescape(parts[1], &signature) ||
        !EqualInConstantTime(signature, HmacSha256(key_, text))) {
      return std::nullopt;
    }
    return text;
  }

 private:
  const std::string key_;
};

}  // namespace lathe::engine
