// Encodes metadata and lists of words in one text column.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "services/engine/store/rows.h"

namespace lathe::engine {

// Encodes with length prefixes, so that any bytes survive: "4:name5:value…".
std::string EncodeMetadata(const Metadata& metadata);
// Decodes the output of EncodeMetadata. Stops at the first malformed pair.
Metadata DecodeMetadata(std::string_view text);

// Encodes words, which must not contain commas, as comma-separated text.
std::string EncodeWords(const std::vector<std::string>& words);
std::vector<std::string> DecodeWords(std::string_view text);

}  // namespace lathe::engine
