// Encrypts a stream in the format age-encryption.org/v1 (binary, X25519 recipients), which the
// tools `age`, `rage` and `pyrage` decrypt.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "libs/common/age/age_recipient.h"

namespace lathe {

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
