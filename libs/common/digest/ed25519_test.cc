#include "libs/common/digest/ed25519.h"

#include <catch2/catch.hpp>

#include "absl/strings/escaping.h"

namespace lathe {
namespace {

// Test 2 of RFC 8032, section 7.1.
constexpr char kSeed[] = "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb";
constexpr char kPublic[] = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c";
constexpr char kSignature[] =
    "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
    "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00";

TEST_CASE("Ed25519: signs as RFC 8032 says", "[digest]") {
  const Ed25519Key key(absl::HexStringToBytes(kSeed));
  CHECK(absl::BytesToHexString(key.PublicKey()) == kPublic);
  CHECK(absl::BytesToHexString(key.Sign("\x72")) == kSignature);
  CHECK(key.Verify("\x72", absl::HexStringToBytes(kSignature)));
}

TEST_CASE("Ed25519: another text, signature, key or length is refused", "[digest]") {
  const Ed25519Key key(std::string(32, 'a'));
  std::string signature = key.Sign("text");
  CHECK(key.Verify("text", signature));
  CHECK_FALSE(key.Verify("Text", signature));
  CHECK_FALSE(key.Verify("text", signature.substr(1)));
  CHECK_FALSE(Ed25519Key(std::string(32, 'b')).Verify("text", signature));
  signature[5] ^= 1;
  CHECK_FALSE(key.Verify("text", signature));
}

}  // namespace
}  // namespace lathe
