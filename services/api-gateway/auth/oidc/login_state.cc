#include "services/api-gateway/auth/oidc/login_state.h"

#include <sodium.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "libs/common/digest/sha256.h"
#include "libs/common/json/json.h"
#include "libs/common/random/random_id.h"
#include "libs/common/status_macros.h"
#include "libs/common/strings/string_view.h"

namespace lathe::gateway {
namespace {

constexpr size_t kRandomTextLength = 43;  // 256 bits
constexpr size_t kMaxNextBytes = 2048;
constexpr size_t kNonceBytes = crypto_aead_xchacha20poly1305_ietf_NPUBBYTES;
constexpr size_t kTagBytes = crypto_aead_xchacha20poly1305_ietf_ABYTES;
constexpr std::string_view kPurpose = "lathe login state 1";

const unsigned char* Bytes(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

absl::Status BadState() {
  return absl::InvalidArgumentError("the state of the sign-in is unknown");
}

bool IsPathCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains("._~/-", c);
}

}  // namespace

LoginState MakeLoginState(std::string next, absl::Time now) {
  return {.state = RandomBase62(kRandomTextLength),
          .nonce = RandomBase62(kRandomTextLength),
          .verifier = RandomBase62(kRandomTextLength),
          .next = std::move(next),
          .began_at = now};
}

std::string CodeChallenge(const std::string& verifier) {
  return absl::WebSafeBase64Escape(Sha256Bytes(verifier));
}

std::string SealLogin(const LoginState& login, const SealKey& key) {
  const std::string text = ToJsonText({{"state", login.state},
                                       {"nonce", login.nonce},
                                       {"verifier", login.verifier},
                                       {"next", login.next},
                                       {"began_at", absl::ToUnixSeconds(login.began_at)}});
  const std::string nonce = RandomBytes(kNonceBytes);
  std::string sealed(text.size() + kTagBytes, '\0');
  unsigned long long num_bytes = 0;  // NOLINT: the type of libsodium
  crypto_aead_xchacha20poly1305_ietf_encrypt(
      reinterpret_cast<unsigned char*>(sealed.data()), &num_bytes, Bytes(text), text.size(),
      Bytes(kPurpose), kPurpose.size(), nullptr, Bytes(nonce), Bytes(key.bytes));
  return absl::WebSafeBase64Escape(nonce + sealed);
}

absl::StatusOr<LoginState> OpenLogin(std::string_view sealed, const std::vector<SealKey>& keys,
                                     absl::Time now) {
  std::string bytes;
  if (!absl::WebSafeBase64Unescape(AbslView(sealed), &bytes) ||
      bytes.size() < kNonceBytes + kTagBytes) {
    return BadState();
  }
  const std::string_view nonce = std::string_view(bytes).substr(0, kNonceBytes);
  const std::string_view box = std::string_view(bytes).substr(kNonceBytes);
  std::string text(box.size() - kTagBytes, '\0');
  unsigned long long num_bytes = 0;  // NOLINT: the type of libsodium
  const bool is_open = std::any_of(keys.begin(), keys.end(), [&](const SealKey& key) {
    return crypto_aead_xchacha20poly1305_ietf_decrypt(
               reinterpret_cast<unsigned char*>(text.data()), &num_bytes, nullptr, Bytes(box),
               box.size(), Bytes(kPurpose), kPurpose.size(), Bytes(nonce), Bytes(key.bytes)) == 0;
  });
  if (!is_open) return BadState();
  LoginState login;
  ASSIGN_OR_RETURN(const Json json, ParseJson(text, "login state"));
  ASSIGN_OR_RETURN(login.state, JsonString(json, "state"));
  ASSIGN_OR_RETURN(login.nonce, JsonString(json, "nonce"));
  ASSIGN_OR_RETURN(login.verifier, JsonString(json, "verifier"));
  ASSIGN_OR_RETURN(login.next, JsonString(json, "next"));
  ASSIGN_OR_RETURN(const int64_t began_at, JsonInt(json, "began_at"));
  login.began_at = absl::FromUnixSeconds(began_at);
  if (now - login.began_at > kLoginLifetime) {
    return absl::DeadlineExceededError("the sign-in took too long");
  }
  return login;
}

std::string SafeNext(std::string_view next) {
  constexpr char kHome[] = "/ui";
  if (next.size() > kMaxNextBytes) return kHome;
  const size_t question = std::min(next.find('?'), next.size());
  const std::string_view path = next.substr(0, question);
  const bool is_ours = path == kHome || path.starts_with("/ui/");
  // Neither an authority nor a step upwards, which a browser would resolve.
  const bool is_plain = std::all_of(path.begin(), path.end(), IsPathCharacter) &&
                        path.find("//") == path.npos && path.find("..") == path.npos;
  const std::string_view query = next.substr(question);
  const bool is_clean = std::all_of(query.begin(), query.end(), [](char c) {
    return c > 0x20 && c < 0x7f && c != '\\' && c != '"' && c != '<' && c != '>' && c != '#';
  });
  // The sign-in page would lead to itself.
  const bool is_sign_in = path.starts_with("/ui/auth") || path == "/ui/login";
  return is_ours && is_plain && is_clean && !is_sign_in ? std::string(next) : kHome;
}

}  // namespace lathe::gateway
