#include "libs/common/digest/sha256.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <cstdlib>

namespace lathe {
namespace {

constexpr std::size_t kDigestBytes = 32;

std::string Hex(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  hex.reserve(2 * bytes.size());
  for (const unsigned char byte : bytes) {
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

// OpenSSL's digest calls fail only without memory or without the algorithm.
void Must(int ok) {
  if (ok != 1) std::abort();
}

}  // namespace

struct Sha256::Context {
  Context() : evp(EVP_MD_CTX_new()) { Must(EVP_DigestInit_ex(evp, EVP_sha256(), nullptr)); }
  ~Context() { EVP_MD_CTX_free(evp); }
  EVP_MD_CTX* evp;
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::Update(std::string_view data) {
  Must(EVP_DigestUpdate(context_->evp, data.data(), data.size()));
}

std::string Sha256::FinishBytes() {
  std::string digest(kDigestBytes, '\0');
  Must(EVP_DigestFinal_ex(context_->evp, reinterpret_cast<unsigned char*>(digest.data()), nullptr));
  return digest;
}

std::string Sha256::FinishHex() { return Hex(FinishBytes()); }

std::string Sha256Bytes(std::string_view data) {
  Sha256 sha;
  sha.Update(data);
  return sha.FinishBytes();
}

std::string Sha256Hex(std::string_view data) { return Hex(Sha256Bytes(data)); }

std::string HmacSha256(std::string_view key, std::string_view data) {
  std::string mac(kDigestBytes, '\0');
  const auto* bytes = reinterpret_cast<const unsigned char*>(data.data());
  if (HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), bytes, data.size(),
           reinterpret_cast<unsigned char*>(mac.data()), nullptr) == nullptr) {
    std::abort();
  }
  return mac;
}

bool EqualInConstantTime(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace lathe
