// Bech32 (BIP 173) without its limit on the length, as age writes keys.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace lathe {

// Returns the bytes of `text` if its prefix before the last "1" is `prefix` (lower case). Returns
// InvalidArgument for anything else, including a wrong checksum. The message does not repeat the
// text.
absl::StatusOr<std::string> DecodeBech32(std::string_view text, std::string_view prefix);

}  // namespace lathe
