// GPT-2's mapping between bytes and printable characters.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lathe::worker {

// Appends the character of each byte of `text` to `out`, in UTF-8.
void AppendByteLevel(std::string_view text, std::string& out);

// Returns the bytes that the characters of `token` represent. If a character is outside the table,
// returns the token's own bytes, as Hugging Face does.
std::string FromByteLevel(std::string_view token);

}  // namespace lathe::worker
