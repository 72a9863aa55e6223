// Keys of an identity provider, and tokens that they sign, for tests.
#pragma once

#include <cjose/cjose.h>

#include <memory>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "libs/common/json/json.h"

namespace lathe::gateway {

class TestSigner {
 public:
  // `alg` is RS256, PS256 or ES256.
  explicit TestSigner(std::string alg, std::string kid = "k1")
      : alg_(std::move(alg)), kid_(std::move(kid)) {
    cjose_err error;
    jwk_.reset(alg_ == "ES256"
                   ? cjose_jwk_create_EC_random(CJOSE_JWK_EC_P_256, &error)
                   : cjose_jwk_create_RSA_random(2048, kExponent, sizeof(kExponent), &error));
    cjose_jwk_set_kid(jwk_.get(), kid_.data(), kid_.size(), &error);
  }

  // Returns the public key as an entry of a key set.
  Json PublicKey() const {
    cjose_err error;
    const std::unique_ptr<char, decltype(&free)> text(
        cjose_jwk_to_json(jwk_.get(), /*priv=*/false, &error), &free);
    return Json::parse(text.get());
  }
  std::string KeySet() const { return Json{{"keys", {PublicKey()}}}.dump(); }

  std::string Sign(const Json& claims) const { return SignText(claims.dump()); }
  std::string SignText(const std::string& payload) const {
    cjose_err error;
    const std::unique_ptr<cjose_header_t, decltype(&cjose_header_release)> header(
        cjose_header_new(&error), &cjose_header_release);
    cjose_header_set(header.get(), CJOSE_HDR_ALG, alg_.c_str(), &error);
    cjose_header_set(header.get(), CJOSE_HDR_KID, kid_.c_str(), &error);
    cjose_jws_t* const jws =
        cjose_jws_sign(jwk_.get(), header.get(), reinterpret_cast<const uint8_t*>(payload.data()),
                       payload.size(), &error);
    const char* text = nullptr;
    cjose_jws_export(jws, &text, &error);
    std::string token = text;
    cjose_jws_release(jws);
    return token;
  }

 private:
  static constexpr uint8_t kExponent[] = {1, 0, 1};

  struct Release {
    void operator()(cjose_jwk_t* jwk) const { cjose_jwk_release(jwk); }
  };

  const std::string alg_;
  const std::string kid_;
  std::unique_ptr<cjose_jwk_t, Release> jwk_;
};

// Returns a token of these parts with the given signature.
inline std::string RawToken(const std::string& header, const std::string& payload,
                            const std::string& signature) {
  return absl::StrCat(absl::WebSafeBase64Escape(header), ".", absl::WebSafeBase64Escape(payload),
                      ".", absl::WebSafeBase64Escape(signature));
}

}  // namespace lathe::gateway
