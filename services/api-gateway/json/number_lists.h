// Reads lists of numbers directly from JSON text. Most of a training body is such lists, and a
// parsed document takes more memory per number than the number itself.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lathe::gateway {

// Appends `piece` to `rest`, with the content of each list that begins with a number replaced by an
// index, as in [0], [1], ... Appends the text between the brackets of each such list to `lists`, as
// a view of `piece`. Returns false if a string or such a list has no end. Does not check that the
// texts are JSON.
bool CutNumberLists(std::string_view piece, std::string* rest,
                    std::vector<std::string_view>* lists);

// Packs the numbers of such a text as T (int32_t, int64_t, float), little-endian. Returns false if
// the text is not JSON numbers of T's kind and range, separated by commas. May return false for
// integers of more than 18 digits and for exponents of more than 6. Rounds floats to the nearest
// double and then to the nearest float, as the JSON parser's reader does.
template <typename T>
bool PackNumbers(std::string_view text, std::string* packed);

}  // namespace lathe::gateway
