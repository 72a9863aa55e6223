// Encodes arbitrary bytes as text that a Postgres column accepts.
#pragma once

#include <string>
#include <string_view>

namespace lathe::engine {

// Names and metadata may hold any bytes, but a Postgres text column takes only UTF-8 without NUL.
// The encoding writes other text as a mark and hexadecimal digits. It is one-to-one, so comparisons
// for equality still work.
std::string EncodeText(std::string_view text);
std::string DecodeText(std::string_view stored);

}  // namespace lathe::engine
