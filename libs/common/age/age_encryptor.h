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

// One file. Its plaintext passes through in chunks of 64 KiB; memory stays at about twice that
// beside what a caller hands in at once. Not thread-safe.
class AgeEncryptor {
 public:
  // Draws the keys of a new file. InvalidArgument: no recipients, or one that is no usable point.
  static absl::StatusOr<std::unique_ptr<AgeEncryptor>> Create(
      const std::vector<AgeRecipient>& recipients);

  ~AgeEncryptor();
  AgeEncryptor(const AgeEncryptor&) = delete;
  AgeEncryptor& operator=(const AgeEncryptor&) = delete;

  // The next bytes of the encrypted file, for the next bytes of the plaintext.
  std::string Update(std::string_view plaintext);
  // Its last bytes; nothing may follow. A file that ends without them does not decrypt.
  std::string Finish();

 private:
  struct Keys;
  explicit AgeEncryptor(std::unique_ptr<Keys> keys, std::string head);

  void Seal(std::string_view chunk, bool is_last, std::string& out);

  std::unique_ptr<Keys> keys_;
  std::string head_;     // not yet handed out
  std::string pending_;  // plaintext short of a chunk, or one whole chunk that may be the last
};

}  // namespace lathe
