// Encryption in the format age-encryption.org/v1 (binary, X25519 recipients), which the tools
// `age`, `rage` and `pyrage` decrypt: public keys, and streams encrypted to them.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace lathe {

// Returns the bytes of `text` if its prefix before the last "1" is `prefix` (lower case). Returns
// InvalidArgument for anything else, including a wrong checksum. The message does not repeat the
// text.
absl::StatusOr<std::string> DecodeBech32(std::string_view text, std::string_view prefix);

// An X25519 public key.
using AgeRecipient = std::array<unsigned char, 32>;

// Parses "age1…". Returns InvalidArgument for other kinds of recipients (SSH keys, plugins) and for
// malformed text.
absl::StatusOr<AgeRecipient> ParseAgeRecipient(std::string_view text);

// Encrypts one file, in chunks of 64 KiB. Memory use is about twice that, plus what the caller
// passes in one call. Not thread-safe.
class AgeEncryptor {
 public:
  // Generates the keys of a new file. Returns InvalidArgument without recipients, or if one is not
  // a usable curve point.
  static absl::StatusOr<std::unique_ptr<AgeEncryptor>> Create(
      const std::vector<AgeRecipient>& recipients);

  ~AgeEncryptor();
  AgeEncryptor(const AgeEncryptor&) = delete;
  AgeEncryptor& operator=(const AgeEncryptor&) = delete;

  // Encrypts the next bytes of the plaintext. Returns the next bytes of the encrypted file.
  std::string Update(std::string_view plaintext);
  // Returns the last bytes of the encrypted file. No call may follow. A file without these bytes
  // does not decrypt.
  std::string Finish();

 private:
  struct Keys;
  explicit AgeEncryptor(std::unique_ptr<Keys> keys, std::string head);

  void Seal(std::string_view chunk, bool is_last, std::string& out);

  std::unique_ptr<Keys> keys_;
  std::string head_;     // header that Update has not returned yet
  std::string pending_;  // part of a chunk, or one whole chunk that may be the last
};

}  // namespace lathe
