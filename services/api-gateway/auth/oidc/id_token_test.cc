#include "services/api-gateway/auth/oidc/id_token.h"

#include <catch2/catch.hpp>

#include "libs/common/digest/sha256.h"
#include "services/api-gateway/auth/oidc/testing/test_signer.h"

namespace lathe::gateway {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1'700'000'000);
const std::vector<std::string> kAlgorithms = {"RS256", "PS256", "ES256"};

Json GoodClaims() {
  return {{"iss", "https://id.example"},
          {"aud", "lathe"},
          {"sub", "ada"},
          {"nonce", "n"},
          {"exp", absl::ToUnixSeconds(kNow) + 300},
          {"iat", absl::ToUnixSeconds(kNow)}};
}

IdTokenChecks Checks() {
  return {.issuer = "https://id.example",
          .client_id = "lathe",
          .nonce = "n",
          .access_token = "access",
          .algorithms = kAlgorithms,
          .now = kNow};
}

// Returns why a token with these claims is refused; "": it is not.
std::string RefusalOf(const Json& claims) {
  static const TestSigner signer("ES256");
  static const JwkSet keys = *JwkSet::Parse(signer.KeySet());
  const absl::Status status = CheckIdToken(signer.Sign(claims), keys, Checks()).status();
  return std::string(status.message());
}

std::string RefusalWith(const char* claim, const Json& value) {
  Json claims = GoodClaims();
  claims[claim] = value;
  return RefusalOf(claims);
}

TEST_CASE("ID token: a good one of each algorithm gives its claims", "[oidc]") {
  const std::string alg = GENERATE("RS256", "PS256", "ES256");
  INFO(alg);
  const TestSigner signer(alg);
  const auto claims =
      CheckIdToken(signer.Sign(GoodClaims()), *JwkSet::Parse(signer.KeySet()), Checks());
  INFO(claims.status());
  REQUIRE(claims.ok());
  CHECK((*claims)["sub"] == "ada");
}

TEST_CASE("ID token: another issuer, client or nonce is refused", "[oidc]") {
  CHECK(RefusalOf(GoodClaims()).empty());
  for (const Json& issuer : {Json("https://id.example/"), Json(""), Json(1), Json(nullptr)}) {
    CHECK_THAT(RefusalWith("iss", issuer), Catch::Contains("iss"));
  }
  for (const Json& nonce : {Json("m"), Json(""), Json(nullptr), Json::array({"n"})}) {
    CHECK_THAT(RefusalWith("nonce", nonce), Catch::Contains("nonce"));
  }
  for (const Json& aud :
       {Json("other"), Json(nullptr), Json::array(), Json::array({"other"}), Json{{"lathe", 1}}}) {
    INFO(aud);
    CHECK_THAT(RefusalWith("aud", aud), Catch::Contains("aud"));
  }
  CHECK(RefusalWith("aud", {"lathe"}).empty());
  CHECK_THAT(RefusalWith("aud", {"lathe", "other"}), Catch::Contains("azp"));
  CHECK_THAT(RefusalWith("azp", "other"), Catch::Contains("azp"));
  Json several = GoodClaims();
  several["aud"] = {"other", "lathe"};
  several["azp"] = "lathe";
  CHECK(RefusalOf(several).empty());
}

TEST_CASE("ID token: times hold within a minute", "[oidc]") {
  const int64_t now = absl::ToUnixSeconds(kNow);
  CHECK(RefusalWith("exp", now - 59).empty());
  CHECK_THAT(RefusalWith("exp", now - 60), Catch::Contains("expired"));
  CHECK(RefusalWith("iat", now + 60).empty());
  CHECK_THAT(RefusalWith("iat", now + 61), Catch::Contains("future"));
  CHECK_THAT(RefusalWith("nbf", now + 61), Catch::Contains("nbf"));
  for (const char* const claim : {"exp", "iat"}) {
    for (const Json& value : {Json(nullptr), Json("1700000300"), Json(-1), Json(1e300)}) {
      INFO(claim << " " << value);
      CHECK_THAT(RefusalWith(claim, value), Catch::Contains(claim));
    }
  }
}

TEST_CASE("ID token: a subject has 1 to 255 bytes", "[oidc]") {
  CHECK(RefusalWith("sub", std::string(255, 's')).empty());
  for (const Json& sub : {Json(std::string(256, 's')), Json(""), Json(1), Json(nullptr)}) {
    CHECK_THAT(RefusalWith("sub", sub), Catch::Contains("sub"));
  }
}

TEST_CASE("ID token: at_hash binds the access token", "[oidc]") {
  const std::string good = absl::WebSafeBase64Escape(Sha256Bytes("access").substr(0, 16));
  CHECK(RefusalWith("at_hash", good).empty());
  CHECK_THAT(RefusalWith("at_hash", absl::WebSafeBase64Escape(Sha256Bytes("other").substr(0, 16))),
             Catch::Contains("at_hash"));
  CHECK_THAT(RefusalWith("at_hash", 1), Catch::Contains("at_hash"));
}

TEST_CASE("ID token: no signature, or one by a public key as a secret, is none", "[oidc]") {
  const TestSigner signer("RS256");
  const JwkSet keys = *JwkSet::Parse(signer.KeySet());
  const std::string payload = GoodClaims().dump();
  const std::string secret = signer.PublicKey().dump();
  const auto hmac = [&](const std::string& header) {
    const std::string text = RawToken(header, payload, "");
    return RawToken(header, payload, HmacSha256(secret, text.substr(0, text.size() - 1)));
  };
  for (const std::string& token :
       {RawToken(R"({"alg":"none"})", payload, ""),
        RawToken(R"({"alg":"none","kid":"k1"})", payload, ""),
        RawToken(R"({"alg":"None"})", payload, ""),
        RawToken(R"({"alg":"RS256","kid":"k1"})", payload, ""),
        RawToken(R"({"alg":["RS256"]})", payload, "x"), RawToken(R"({"kid":"k1"})", payload, "x"),
        RawToken(R"({"alg":"none","alg":"RS256","kid":"k1"})", payload, "x"),
        RawToken(R"({"alg":"RS256","kid":"k1","crit":["b64"]})", payload, "x"),
        RawToken(R"({"alg":"RS256","kid":1})", payload, "x"), RawToken("[]", payload, "x"),
        hmac(R"({"alg":"HS256","kid":"k1"})"), std::string("a.b"), std::string("a.b.c.d"),
        std::string(), std::string(70'000, 'a')}) {
    INFO(token.substr(0, 100));
    CHECK_FALSE(CheckIdToken(token, keys, Checks()).ok());
  }
  // Also if somebody configured it.
  IdTokenChecks careless = Checks();
  careless.algorithms = {"HS256", "none", "RS256"};
  CHECK_FALSE(CheckIdToken(hmac(R"({"alg":"HS256","kid":"k1"})"), keys, careless).ok());
  CHECK_FALSE(CheckIdToken(RawToken(R"({"alg":"none"})", payload, ""), keys, careless).ok());
  // An algorithm that is not configured.
  IdTokenChecks strict = Checks();
  strict.algorithms = {"ES256"};
  CHECK_FALSE(CheckIdToken(signer.Sign(GoodClaims()), keys, strict).ok());
}

TEST_CASE("ID token: a changed payload, or one of another key, is refused", "[oidc]") {
  const TestSigner signer("ES256");
  const TestSigner other("ES256");
  const JwkSet keys = *JwkSet::Parse(signer.KeySet());
  CHECK_FALSE(CheckIdToken(other.Sign(GoodClaims()), keys, Checks()).ok());
  std::string token = signer.Sign(GoodClaims());
  const size_t dot = token.find('.');
  token[dot + 5] = token[dot + 5] == 'A' ? 'B' : 'A';
  CHECK_FALSE(CheckIdToken(token, keys, Checks()).ok());
  CHECK_FALSE(CheckIdToken(signer.SignText("not JSON"), keys, Checks()).ok());
  CHECK_FALSE(CheckIdToken(signer.SignText("[]"), keys, Checks()).ok());
}

TEST_CASE("Key set: an unknown key is not found, and secrets are no keys", "[oidc]") {
  const TestSigner signer("RS256", "new");
  const TestSigner old("RS256", "old");
  const std::string token = signer.Sign(GoodClaims());
  const JwkSet keys = *JwkSet::Parse(old.KeySet());
  CHECK(absl::IsNotFound(CheckIdToken(token, keys, Checks()).status()));
  const JwkSet both = *JwkSet::Parse(Json{{"keys", {old.PublicKey(), signer.PublicKey()}}}.dump());
  CHECK(CheckIdToken(token, both, Checks()).ok());
  Json encryption = signer.PublicKey();
  encryption["use"] = "enc";
  const Json secret = {{"kty", "oct"}, {"k", "c2VjcmV0"}, {"kid", "new"}};
  const JwkSet none =
      *JwkSet::Parse(Json{{"keys", {encryption, secret, 1, {{"kty", "RSA"}}}}}.dump());
  CHECK(absl::IsNotFound(CheckIdToken(token, none, Checks()).status()));
  CHECK_FALSE(JwkSet::Parse("{}").ok());
  CHECK_FALSE(JwkSet::Parse("[]").ok());
  CHECK_FALSE(JwkSet::Parse(Json{{"keys", Json(std::vector<int>(101, 1))}}.dump()).ok());
}

}  // namespace
}  // namespace lathe::gateway
