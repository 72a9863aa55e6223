#include "services/api-gateway/auth/oidc/jwk_set.h"

#include <cjose/cjose.h>

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "libs/common/json/json.h"
#include "libs/common/status_macros.h"

namespace lathe::gateway {
namespace {

constexpr size_t kMaxTokenBytes = 64 << 10;
constexpr int kNumTokenParts = 3;

struct JwsRelease {
  void operator()(cjose_jws_t* jws) const { cjose_jws_release(jws); }
};
struct JwkRelease {
  void operator()(cjose_jwk_t* jwk) const { cjose_jwk_release(jwk); }
};

absl::Status BadToken(const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("the token is refused: ", why));
}

cjose_jwk_kty_t KeyTypeOf(std::string_view alg) {
  return alg.starts_with("ES") ? CJOSE_JWK_KTY_EC : CJOSE_JWK_KTY_RSA;
}

struct TokenHeader {
  std::string alg;
  std::string kid;  // empty: none
};

// Reads the header, which names the key and is not signed by anything that is known yet.
absl::StatusOr<TokenHeader> ReadTokenHeader(const std::string& token) {
  if (token.size() > kMaxTokenBytes) {
    return BadToken(absl::StrCat("it has ", token.size(), " bytes, limit is ", kMaxTokenBytes));
  }
  if (std::count(token.begin(), token.end(), '.') != kNumTokenParts - 1) {
    return BadToken("it has not three parts");
  }
  std::string text;
  if (!absl::WebSafeBase64Unescape(token.substr(0, token.find('.')), &text)) {
    return BadToken("its header is not base64url");
  }
  const absl::StatusOr<Json> json = ParseJson(text, "header");
  if (!json.ok() || !json->is_object()) return BadToken("its header is not JSON");
  if (json->contains("crit")) return BadToken("its header has crit");
  const absl::StatusOr<std::string> alg = JsonString(*json, "alg");
  if (!alg.ok()) return BadToken("its header has no alg that is a text");
  TokenHeader header{.alg = *alg, .kid = ""};
  if (JsonHas(*json, "kid")) {
    const absl::StatusOr<std::string> kid = JsonString(*json, "kid");
    if (!kid.ok()) return BadToken("its kid is no text");
    header.kid = *kid;
  }
  return header;
}

}  // namespace

struct JwkSet::Key {
  std::string kid;
  std::string alg;  // empty: any of its type
  std::unique_ptr<cjose_jwk_t, JwkRelease> jwk;
};

JwkSet::JwkSet() = default;
JwkSet::JwkSet(JwkSet&&) noexcept = default;
JwkSet& JwkSet::operator=(JwkSet&&) noexcept = default;
JwkSet::~JwkSet() = default;

absl::StatusOr<JwkSet> JwkSet::Parse(std::string_view text) {
  ASSIGN_OR_RETURN(const Json json, ParseJson(text, "key set"));
  if (!json.is_object() || !json.contains("keys") || !json["keys"].is_array()) {
    return absl::InvalidArgumentError("the key set has no list of keys");
  }
  if (json["keys"].size() > kMaxKeys) {
    return absl::InvalidArgumentError(
        absl::StrCat("the key set has ", json["keys"].size(), " keys, limit is ", kMaxKeys));
  }
  JwkSet set;
  for (const Json& entry : json["keys"]) {
    const std::string use = JsonString(entry, "use").value_or("sig");
    const std::string kty = JsonString(entry, "kty").value_or("");
    // A shared secret is no public key, whatever the provider says.
    if (use != "sig" || (kty != "RSA" && kty != "EC")) continue;
    const std::string jwk = ToJsonText(entry);
    cjose_err error;
    auto key = std::make_unique<Key>();
    key->jwk.reset(cjose_jwk_import(jwk.data(), jwk.size(), &error));
    if (!key->jwk) continue;
    key->kid = JsonString(entry, "kid").value_or("");
    key->alg = JsonString(entry, "alg").value_or("");
    set.keys_.push_back(std::move(key));
  }
  return set;
}

absl::StatusOr<const JwkSet::Key*> JwkSet::FindKey(const std::string& kid,
                                                   const std::string& alg) const {
  const Key* found = nullptr;
  int num_fitting = 0;
  for (const auto& key : keys_) {
    cjose_err error;
    if (cjose_jwk_get_kty(key->jwk.get(), &error) != KeyTypeOf(alg)) continue;
    if (!key->alg.empty() && key->alg != alg) continue;
    if (!kid.empty() && key->kid != kid) continue;
    found = key.get();
    ++num_fitting;
  }
  if (num_fitting == 1) return found;
  if (num_fitting == 0) return absl::NotFoundError("no key of the provider fits the token");
  return BadToken("several keys of the provider fit it");
}

absl::StatusOr<std::string> JwkSet::Verify(const std::string& token,
                                           const std::vector<std::string>& algorithms) const {
  ASSIGN_OR_RETURN(const TokenHeader header, ReadTokenHeader(token));
  if (std::find(algorithms.begin(), algorithms.end(), header.alg) == algorithms.end()) {
    return BadToken("its alg is not one of those that are configured");
  }
  ASSIGN_OR_RETURN(const Key* const key, FindKey(header.kid, header.alg));
  cjose_err error;
  const std::unique_ptr<cjose_jws_t, JwsRelease> jws(
      cjose_jws_import(token.data(), token.size(), &error));
  if (!jws) return BadToken("it is no JWS");
  // cjose reads the header with a parser of its own, which must have found the same algorithm.
  const char* const alg = cjose_header_get(cjose_jws_get_protected(jws.get()), "alg", &error);
  if (alg == nullptr || header.alg != alg) return BadToken("its header is ambiguous");
  if (!cjose_jws_verify(jws.get(), key->jwk.get(), &error)) {
    return BadToken("its signature is wrong");
  }
  uint8_t* payload = nullptr;
  size_t num_bytes = 0;
  if (!cjose_jws_get_plaintext(jws.get(), &payload, &num_bytes, &error)) {
    return BadToken("it has no payload");
  }
  return std::string(reinterpret_cast<const char*>(payload), num_bytes);
}

}  // namespace lathe::gateway
