// Public keys that files are encrypted to, in the form of the tool `age`.
#pragma once

#include <array>
#include <string>
#include <string_view>

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

}  // namespace lathe
