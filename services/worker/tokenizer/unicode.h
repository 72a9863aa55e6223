// Characters: properties, normal forms, and the printable characters that stand for bytes. All use
// of ICU is here.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace lathe::worker {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// Normalizes `text` by the rules of Unicode 9. Characters added later stay unchanged. `text` is
// UTF-8 of at most 2 GiB.
absl::StatusOr<std::string> Normalize(std::string_view text, NormalForm form);

bool IsWhiteSpace(char32_t character);  // property White_Space
bool IsNumeric(char32_t character);     // general category N
bool IsWord(char32_t character);        // \w of UTS 18: letters, marks, digits, connectors, joiners

// Returns the index of the first byte that does not belong to a valid UTF-8 character, or npos.
size_t FirstInvalidByte(std::string_view text);

// Appends the character of each byte of `text` to `out`, in UTF-8.
void AppendByteLevel(std::string_view text, std::string& out);

// Returns the bytes that the characters of `token` represent. If a character is outside the table,
// returns the token's own bytes, as Hugging Face does.
std::string FromByteLevel(std::string_view token);

}  // namespace lathe::worker
