// Text that a Postgres column takes.
#pragma once

#include <string>
#include <string_view>

namespace lathe::engine {

// Names and metadata may hold any bytes, a Postgres text only UTF-8 without NUL. What would be
// refused is written as a mark and hexadecimal digits; equal stays equal, different different.
std::string EncodeText(std::string_view text);
std::string DecodeText(std::string_view stored);

}  // namespace lathe::engine
