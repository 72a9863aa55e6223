// Metadata and lists of words in one text column.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "services/engine/store/rows.h"

namespace lathe::engine {

// Length-prefixed, so that any bytes survive: "4:name5:value…".
std::string EncodeMetadata(const Metadata& metadata);
// Reads what EncodeMetadata wrote; stops at the first thing it did not write.
Metadata DecodeMetadata(std::string_view text);

// Words without commas.
std::string EncodeWords(const std::vector<std::string>& words);
std::vector<std::string> DecodeWords(std::string_view text);

}  // namespace lathe::engine
