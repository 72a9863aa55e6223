#include "services/engine/rpc/signed_text.h"

#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "libs/common/digest/sha256.h"

namespace lathe::engine {

std::string SignText(const std::string& secret, const std::string& text) {
  return absl::StrCat(absl::WebSafeBase64Escape(text), ".",
                      absl::WebSafeBase64Escape(HmacSha256(secret, text)));
}

std::optional<std::string> VerifySignedText(const std::string& secret, const std::string& token) {
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
