// Ed25519 signatures (RFC 8032). Hides OpenSSL from its users.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace lathe {

// A key pair. Thread-safe.
class Ed25519Key {
 public:
  static constexpr std::size_t kSeedBytes = 32;
  static constexpr std::size_t kSignatureBytes = 64;

  // `seed` is the private key: kSeedBytes random bytes.
  explicit Ed25519Key(std::string_view seed);
  ~Ed25519Key();
  Ed25519Key(const Ed25519Key&) = delete;

  // Returns kSignatureBytes raw bytes.
  std::string Sign(std::string_view data) const;
  bool Verify(std::string_view data, std::string_view signature) const;
  // Returns 32 raw bytes.
  std::string PublicKey() const;

 private:
  struct Pair;
  std::unique_ptr<Pair> pair_;
};

}  // namespace lathe
