#include "services/engine/auth/token_signer.h"

#include <catch2/catch.hpp>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "libs/common/errors.h"
#include "libs/common/json/json.h"
#include "services/engine/store/sqlite/sqlite_store.h"
#include "services/engine/store/testing/temp_dir.h"

namespace lathe::engine {
namespace {

struct TokenSignerFixture {
  TempDir dir;
  std::unique_ptr<SqliteStore> store = *SqliteStore::Open(
      {.database = dir.path() / "lathe.db", .bodies_dir = dir.path() / "bodies"});
  FakeClock clock;
  TokenSigner signer{*store, clock};

  std::string Issue() { return signer.Issue("k1", "default")->jwt; }
};

std::vector<std::string> Parts(const std::string& jwt) { return absl::StrSplit(jwt, '.'); }

std::string Decoded(const std::string& part) {
  std::string text;
  REQUIRE(absl::WebSafeBase64Unescape(part, &text));
  return text;
}

TEST_CASE("TokenSigner: a token names its key and has the claims that the SDK reads", "[auth]") {
  TokenSignerFixture f;
  const std::string jwt = f.Issue();
  CHECK(TokenSigner::IsToken(jwt));
  CHECK(*f.signer.Verify(jwt) == "k1");
  CHECK((*ParseJson(Decoded(Parts(jwt)[0]), "header"))["alg"] == "EdDSA");
  const Json claims = *ParseJson(Decoded(Parts(jwt)[1]), "claims");
  CHECK(claims["org_id"] == "default");
  CHECK(claims["exp"].get<int64_t>() - claims["iat"].get<int64_t>() == 3600);
}

TEST_CASE("TokenSigner: a token outlives a restart and another store refuses it", "[auth]") {
  TokenSignerFixture f;
  TokenSigner restarted(*f.store, f.clock);
  CHECK(restarted.Verify(f.Issue()).ok());
  TokenSignerFixture other;
  CHECK(ErrorCode(other.signer.Verify(f.Issue()).status()) == "bad_token");
}

TEST_CASE("TokenSigner: time ends a token, with a minute of leeway, and says so", "[auth]") {
  TokenSignerFixture f;
  const std::string jwt = f.Issue();
  f.clock.Advance(TokenSigner::kLifetime + absl::Seconds(59));
  CHECK(f.signer.Verify(jwt).ok());
  f.clock.Advance(absl::Seconds(2));
  const absl::Status expired = f.signer.Verify(jwt).status();
  CHECK(ErrorCode(expired) == "bad_token");
  CHECK_THAT(std::string(expired.message()), Catch::Contains("expired"));
}

TEST_CASE("TokenSigner: the previous signing key still verifies, an older one does not", "[auth]") {
  TokenSignerFixture f;
  const std::string jwt = f.Issue();
  f.clock.Advance(absl::Hours(24 * 30));
  CHECK_THAT(std::string(f.signer.Verify(jwt).status().message()), Catch::Contains("expired"));
  CHECK(Parts(f.Issue())[0] != Parts(jwt)[0]);
  f.clock.Advance(absl::Hours(24 * 30));
  CHECK(f.signer.Verify(jwt).status().message() == "the token is not valid");
}

TEST_CASE("TokenSigner: forged tokens are refused in one and the same way", "[auth]") {
  TokenSignerFixture f;
  const std::vector<std::string> parts = Parts(f.Issue());
  const auto header = [](const char* text) { return absl::WebSafeBase64Escape(text); };
  const auto forged = GENERATE_COPY(
      std::string(""), std::string("eyJ"), std::string("eyJ.eyJ.eyJ"), std::string("a.b.c.d"),
      absl::StrCat(parts[0], ".", parts[1]), absl::StrCat(parts[0], ".", parts[1], "."),
      absl::StrCat(header(R"({"alg":"none"})"), ".", parts[1], "."),
      absl::StrCat(header(R"({"alg":"HS256","typ":"JWT"})"), ".", parts[1], ".", parts[2]),
      absl::StrCat(parts[0], ".", header(R"({"sub":"k2"})"), ".", parts[2]),
      absl::StrCat(parts[0], ".", parts[1], "!.", parts[2]));
  INFO(forged);
  const absl::Status status = f.signer.Verify(forged).status();
  CHECK(absl::IsUnauthenticated(status));
  CHECK(status.message() == "the token is not valid");
}

}  // namespace
}  // namespace lathe::engine
