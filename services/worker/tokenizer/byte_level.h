// GPT-2's table between bytes and printable characters.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lathe::worker {

// Each byte of `text` as its character, UTF-8, appended to `out`.
void AppendByteLevel(std::string_view text, std::string& out);

// The bytes that the characters of `token` stand for; the token's own bytes when it has a
// character outside the table, as Hugging Face decodes it.
std::string FromByteLevel(std::string_view token);

}  // namespace lathe::worker
