#include "services/engine/auth/token_signer.h"

#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "libs/common/errors.h"
#include "libs/common/json/json.h"
#include "libs/common/status_macros.h"

namespace lathe::engine {
namespace {

constexpr absl::Duration kPeriod = absl::Hours(30 * 24);
// Issuer and audience of every token.
constexpr char kIssuer[] = "lathe";

int64_t PeriodOf(absl::Time time) {
  return absl::ToUnixSeconds(time) / absl::ToInt64Seconds(kPeriod);
}

// Encodes base64url without padding, as JWTs require.
std::string Encode(const std::string& bytes) { return absl::WebSafeBase64Escape(bytes); }

// Returns the only valid header. A token with another algorithm does not match it.
std::string HeaderOf(int64_t period) {
  return Encode(ToJsonText({{"alg", "EdDSA"}, {"typ", "JWT"}, {"kid", absl::StrCat(period)}}));
}

struct Claims {
  std::string key_id;
  int64_t issued_at = 0;
  int64_t expires_at = 0;
};

absl::StatusOr<Claims> ReadClaims(const std::string& payload) {
  std::string text;
  if (!absl::WebSafeBase64Unescape(payload, &text)) return TokenSigner::BadToken();
  ASSIGN_OR_RETURN(const Json json, ParseJson(text, "token"));
  ASSIGN_OR_RETURN(const std::string issuer, JsonString(json, "iss"));
  ASSIGN_OR_RETURN(const std::string audience, JsonString(json, "aud"));
  if (issuer != kIssuer || audience != kIssuer) return TokenSigner::BadToken();
  Claims claims;
  ASSIGN_OR_RETURN(claims.key_id, JsonString(json, "sub"));
  ASSIGN_OR_RETURN(claims.issued_at, JsonInt(json, "iat"));
  ASSIGN_OR_RETURN(claims.expires_at, JsonInt(json, "exp"));
  return claims;
}

absl::Status CheckTimes(const Claims& claims, absl::Time now) {
  if (absl::FromUnixSeconds(claims.expires_at) + TokenSigner::kLeeway <= now) {
    return WithDetail(absl::UnauthenticatedError("the token has expired; exchange the API key for "
                                                 "a new one"),
                      "bad_token");
  }
  if (absl::FromUnixSeconds(claims.issued_at) - TokenSigner::kLeeway > now) {
    return TokenSigner::BadToken();
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status TokenSigner::BadToken() {
  return WithDetail(absl::UnauthenticatedError("the token is not valid"), "bad_token");
}

bool TokenSigner::IsToken(std::string_view credential) { return credential.starts_with("eyJ"); }

absl::StatusOr<const Ed25519Key*> TokenSigner::KeyOf(int64_t period) {
  {
    absl::MutexLock lock(&mu_);
    const auto found = keys_.find(period);
    if (found != keys_.end()) return found->second.get();
  }
  ASSIGN_OR_RETURN(const std::string seed, store_.Secret(absl::StrCat("jwt_signing_key_", period)));
  auto key = std::make_unique<Ed25519Key>(seed);
  absl::MutexLock lock(&mu_);
  return keys_.emplace(period, std::move(key)).first->second.get();
}

absl::StatusOr<TokenSigner::Token> TokenSigner::Issue(const std::string& key_id,
                                                      const std::string& tenant_name) {
  const absl::Time now = clock_.Now();
  const int64_t period = PeriodOf(now);
  ASSIGN_OR_RETURN(const Ed25519Key* const key, KeyOf(period));
  const std::string payload = Encode(ToJsonText({{"iss", kIssuer},
                                                 {"aud", kIssuer},
                                                 {"sub", key_id},
                                                 {"org_id", tenant_name},
                                                 {"email", ""},
                                                 {"iat", absl::ToUnixSeconds(now)},
                                                 {"exp", absl::ToUnixSeconds(now + kLifetime)}}));
  const std::string text = absl::StrCat(HeaderOf(period), ".", payload);
  return Token{.jwt = absl::StrCat(text, ".", Encode(key->Sign(text))),
               .expires_at = now + kLifetime};
}

absl::StatusOr<std::string> TokenSigner::Verify(std::string_view jwt) {
  const std::vector<std::string> parts =
      absl::StrSplit(absl::string_view(jwt.data(), jwt.size()), '.');
  std::string signature;
  if (parts.size() != 3 || !absl::WebSafeBase64Unescape(parts[2], &signature)) return BadToken();
  const absl::Time now = clock_.Now();
  for (int64_t period = PeriodOf(now) - 1; period <= PeriodOf(now); ++period) {
    if (parts[0] != HeaderOf(period)) continue;
    ASSIGN_OR_RETURN(const Ed25519Key* const key, KeyOf(period));
    if (!key->Verify(absl::StrCat(parts[0], ".", parts[1]), signature)) return BadToken();
    // The signature is valid from here on.
    const absl::StatusOr<Claims> claims = ReadClaims(parts[1]);
    if (!claims.ok()) return BadToken();
    RETURN_IF_ERROR(CheckTimes(*claims, now));
    return claims->key_id;
  }
  return BadToken();
}

}  // namespace lathe::engine
