#include "libs/common/digest/ed25519.h"

#include <openssl/evp.h>

#include <cstdlib>

namespace lathe {
namespace {

const unsigned char* Bytes(std::string_view data) {
  return reinterpret_cast<const unsigned char*>(data.data());
}

struct FreeContext {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};
using DigestContext = std::unique_ptr<EVP_MD_CTX, FreeContext>;

// Aborts. OpenSSL fails here only without memory, or for a seed of a wrong length, which is a bug.
void Must(bool ok) {
  if (!ok) std::abort();
}

}  // namespace

struct Ed25519Key::Pair {
  explicit Pair(std::string_view seed)
      : key(EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, Bytes(seed), seed.size())) {
    Must(key != nullptr);
  }
  ~Pair() { EVP_PKEY_free(key); }
  Pair(const Pair&) = delete;
  EVP_PKEY* key;
};

Ed25519Key::Ed25519Key(std::string_view seed) : pair_(std::make_unique<Pair>(seed)) {}
Ed25519Key::~Ed25519Key() = default;

std::string Ed25519Key::Sign(std::string_view data) const {
  const DigestContext context(EVP_MD_CTX_new());
  std::string signature(kSignatureBytes, '\0');
  std::size_t size = signature.size();
  Must(EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, pair_->key) == 1);
  Must(EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()), &size,
                      Bytes(data), data.size()) == 1);
  return signature;
}

bool Ed25519Key::Verify(std::string_view data, std::string_view signature) const {
  if (signature.size() != kSignatureBytes) return false;
  const DigestContext context(EVP_MD_CTX_new());
  Must(EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, pair_->key) == 1);
  return EVP_DigestVerify(context.get(), Bytes(signature), signature.size(), Bytes(data),
                          data.size()) == 1;
}

std::string Ed25519Key::PublicKey() const {
  std::string key(32, '\0');
  std::size_t size = key.size();
  Must(EVP_PKEY_get_raw_public_key(pair_->key, reinterpret_cast<unsigned char*>(key.data()),
                                   &size) == 1);
  return key;
}

}  // namespace lathe
