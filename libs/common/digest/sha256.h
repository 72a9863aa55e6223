// SHA-256. Hides OpenSSL from its users.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace lathe {

// Returns the digest of `data` as 64 lower-case hex digits.
std::string Sha256Hex(std::string_view data);

// Returns the digest of `data` as 32 raw bytes.
std::string Sha256Bytes(std::string_view data);

// Computes the digest of data that arrives in pieces. Not thread-safe.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void Update(std::string_view data);
  // Returns the digest of all data. Call one of these two once, at the end.
  std::string FinishHex();
  std::string FinishBytes();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

// Returns the HMAC-SHA-256 of `data` under `key` as 32 raw bytes.
std::string HmacSha256(std::string_view key, std::string_view data);

// Returns true if `a` and `b` are equal. The time does not depend on where they differ.
bool EqualInConstantTime(std::string_view a, std::string_view b);

}  // namespace lathe
