#include "libs/common/digest/sha256.h"

#include <catch2/catch.hpp>

namespace lathe {
namespace {

// Test vectors of FIPS 180-2, appendix B.
constexpr char kOfAbc[] = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
constexpr char kOfNothing[] = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

TEST_CASE("SHA-256 agrees with the published vectors", "[digest]") {
  CHECK(Sha256Hex("abc") == kOfAbc);
  CHECK(Sha256Hex("") == kOfNothing);
  CHECK(Sha256Bytes("abc").size() == 32);
}

TEST_CASE("Pieces give the digest of the whole", "[digest]") {
  Sha256 sha;
  sha.Update("a");
  sha.Update("");
  sha.Update("bc");
  CHECK(sha.FinishHex() == kOfAbc);
}

TEST_CASE("HMAC-SHA-256 agrees with RFC 4231 case 2", "[digest]") {
  const std::string mac = HmacSha256("Jefe", "what do ya want for nothing?");
  CHECK(static_cast<unsigned char>(mac.front()) == 0x5b);
  CHECK(static_cast<unsigned char>(mac.back()) == 0x43);
}

TEST_CASE("Comparison in constant time still compares", "[digest]") {
  CHECK(EqualInConstantTime("secret", "secret"));
  CHECK_FALSE(EqualInConstantTime("secret", "secreT"));
  CHECK_FALSE(EqualInConstantTime("secret", "secret1"));
}

}  // namespace
}  // namespace lathe
