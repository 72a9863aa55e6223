#include <sodium.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/escaping.h"
#include "libs/common/age/age.h"

namespace lathe {
namespace {

constexpr size_t kChunk = 64 << 10;
constexpr size_t kTag = 16;

std::string Hmac(const std::string& key, const std::string& message) {
  crypto_auth_hmacsha256_state state;
  std::string digest(32, '\0');
  const auto bytes = [](const std::string& s) {
    return reinterpret_cast<const unsigned char*>(s.data());
  };
  crypto_auth_hmacsha256_init(&state, bytes(key), key.size());
  crypto_auth_hmacsha256_update(&state, bytes(message), message.size());
  crypto_auth_hmacsha256_final(&state, reinterpret_cast<unsigned char*>(digest.data()));
  return digest;
}

std::string Hkdf(const std::string& secret, const std::string& salt, const std::string& info) {
  return Hmac(Hmac(salt, secret), info + '\x01');
}

std::string Open(const std::string& key, const std::string& nonce, const std::string& sealed) {
  REQUIRE(sealed.size() >= kTag);
  std::string plain(sealed.size() - kTag, '\0');
  const auto bytes = [](const std::string& s) {
    return reinterpret_cast<const unsigned char*>(s.data());
  };
  REQUIRE(crypto_aead_chacha20poly1305_ietf_decrypt(reinterpret_cast<unsigned char*>(plain.data()),
                                                    nullptr, nullptr, bytes(sealed), sealed.size(),
                                                    nullptr, 0, bytes(nonce), bytes(key)) == 0);
  return plain;
}

std::string FromBase64(const std::string& text) {
  std::string bytes;
  REQUIRE(absl::Base64Unescape(text, &bytes));
  return bytes;
}

struct Identity {
  std::string secret = std::string(32, '\0');
  AgeRecipient recipient;

  Identity() {
    REQUIRE(sodium_init() >= 0);
    randombytes_buf(secret.data(), secret.size());
    crypto_scalarmult_base(recipient.data(), reinterpret_cast<const unsigned char*>(secret.data()));
  }
};

std::string TakeLine(std::string& rest) {
  const size_t end = rest.find('\n');
  REQUIRE(end != std::string::npos);
  std::string line = rest.substr(0, end);
  rest.erase(0, end + 1);
  return line;
}

// Decrypts a file with `identity`, using the stanza at `stanza_index`.
std::string Decrypt(std::string file, const Identity& identity, size_t stanza_index) {
  std::string mac_input;
  std::string file_key;
  mac_input = TakeLine(file) + "\n";
  REQUIRE(mac_input == "age-encryption.org/v1\n");
  for (size_t i = 0; file.substr(0, 2) == "->"; ++i) {
    const std::string head = TakeLine(file);
    const std::string body = TakeLine(file);
    mac_input += head + "\n" + body + "\n";
    REQUIRE(head.substr(0, 10) == "-> X25519 ");
    if (i != stanza_index) continue;
    const std::string share = FromBase64(head.substr(10));
    std::string shared(32, '\0');
    REQUIRE(crypto_scalarmult(reinterpret_cast<unsigned char*>(shared.data()),
                              reinterpret_cast<const unsigned char*>(identity.secret.data()),
                              reinterpret_cast<const unsigned char*>(share.data())) == 0);
    const std::string salt =
        share + std::string(identity.recipient.begin(), identity.recipient.end());
    file_key = Open(Hkdf(shared, salt, "age-encryption.org/v1/X25519"), std::string(12, '\0'),
                    FromBase64(body));
  }
  const std::string mac = TakeLine(file);
  REQUIRE(FromBase64(mac.substr(4)) == Hmac(Hkdf(file_key, "", "header"), mac_input + "---"));
  const std::string key = Hkdf(file_key, file.substr(0, 16), "payload");
  file.erase(0, 16);
  std::string plain;
  std::string nonce(12, '\0');
  while (true) {
    const bool is_last = file.size() <= kChunk + kTag;
    nonce[11] = is_last ? 1 : 0;
    plain += Open(key, nonce, file.substr(0, kChunk + kTag));
    if (is_last) return plain;
    file.erase(0, kChunk + kTag);
    ++nonce[10];
  }
}

TEST_CASE("age: text that is encrypted piece by piece decrypts for each recipient", "[age]") {
  const size_t size = GENERATE(0u, 1u, 65535u, 65536u, 65537u, 131072u, 200'000u);
  const size_t piece = GENERATE(1000u, 65536u, 70'000u, 1u << 20);
  const Identity first, second;
  auto encryptor = AgeEncryptor::Create({first.recipient, second.recipient});
  REQUIRE(encryptor.ok());
  std::string plain(size, '\0');
  randombytes_buf(plain.data(), plain.size());
  std::string file;
  for (size_t at = 0; at < size; at += piece) {
    file += (*encryptor)->Update(std::string_view(plain).substr(at, piece));
  }
  file += (*encryptor)->Finish();
  CHECK(Decrypt(file, first, 0) == plain);
  CHECK(Decrypt(file, second, 1) == plain);
}

TEST_CASE("age: two files for one recipient share no key", "[age]") {
  const Identity identity;
  const auto encrypt = [&] { return (*AgeEncryptor::Create({identity.recipient}))->Finish(); };
  const std::string a = encrypt();
  const std::string b = encrypt();
  CHECK(a.size() == b.size());
  CHECK(a.substr(a.size() - 32) != b.substr(b.size() - 32));
}

TEST_CASE("age: no recipients, or a point of low order, encrypt nothing", "[age]") {
  CHECK_FALSE(AgeEncryptor::Create({}).ok());
  CHECK_FALSE(AgeEncryptor::Create({AgeRecipient{}}).ok());
}

// The public key of the secret key in the test suite of https://age-encryption.org/v1 ("testkit").
constexpr char kTestRecipient[] = "age1lvyvwawkr0mcnnnncaghunadrqkmuf9e6507x9y920xxpp866cnql7dp2z";

TEST_CASE("age: a recipient is read in either case, never in both", "[age]") {
  std::string text = kTestRecipient;
  CHECK(ParseAgeRecipient(text).ok());
  std::string upper = text;
  std::transform(upper.begin(), upper.end(), upper.begin(), ::toupper);
  CHECK(*ParseAgeRecipient(upper) == *ParseAgeRecipient(text));
  text[10] = static_cast<char>(::toupper(text[10]));
  CHECK_FALSE(ParseAgeRecipient(text).ok());
}

TEST_CASE("age: a recipient that is no X25519 key is refused", "[age]") {
  const auto text = GENERATE(
      as<std::string>(), "", "age", "age1", "age1qqqqqq", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA",
      "age1lvyvwawkr0mcnnnncaghunadrqkmuf9e6507x9y920xxpp866cnql7dp2q",
      "bge1lvyvwawkr0mcnnnncaghunadrqkmuf9e6507x9y920xxpp866cnql7dp2z", std::string(5000, 'a'));
  CHECK_FALSE(ParseAgeRecipient(text).ok());
}

// Valid and invalid test vectors of BIP 173.
TEST_CASE("Bech32: the vectors of BIP 173", "[age]") {
  CHECK(DecodeBech32("A12UEL5L", "a").ok());
  CHECK(DecodeBech32("abcdef1qpzry9x8gf2tvdw0s3jn54khce6mua7lmqqqxw", "abcdef").ok());
  CHECK_FALSE(DecodeBech32("A1G7SGD8", "a").ok());
  CHECK_FALSE(DecodeBech32("10a06t8", "").ok());
  CHECK_FALSE(DecodeBech32("x1b4n0q5v", "x").ok());
}

}  // namespace
}  // namespace lathe
