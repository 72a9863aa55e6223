// Lists of numbers straight from JSON text: most of a training body is nothing else, and a document
// costs more per number than the number.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lathe::gateway {

// `piece` with each list that begins with a number replaced by [index], index counting up from 0,
// and the texts between the brackets of those lists, views of `piece`. False when `piece` cannot be
// walked over; whether what is cut out is JSON shows when it is read.
bool CutNumberLists(std::string_view piece, std::string* rest,
                    std::vector<std::string_view>* lists);

// The numbers of such a text as packed T (int32_t, int64_t, float), little-endian. False when it is
// anything but JSON numbers of T's kind and range with commas between them. Floats are the nearest
// double, then the nearest float, as a document's reader gives them.
template <typename T>
bool PackNumbers(std::string_view text, std::string* packed);

}  // namespace lathe::gateway
