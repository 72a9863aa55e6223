// Public keys that files are encrypted to, in the form of the tool `age`.
#pragma once

#include <array>
#include <string_view>

#include "absl/status/statusor.h"

namespace lathe {

// An X25519 public key.
using AgeRecipient = std::array<unsigned char, 32>;

// Parses "age1…". Returns InvalidArgument for other kinds of recipients (SSH keys, plugins) and for
// malformed text.
absl::StatusOr<AgeRecipient> ParseAgeRecipient(std::string_view text);

}  // namespace lathe
