// Reads lists of numbers directly from JSON text; the only reader of such lists. Most of a large
// body is lists of numbers, and a parsed document takes more memory per number than the number
// itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "services/api-gateway/json/parse_json.h"

namespace lathe::gateway {

// A JSON text without its lists of numbers, and these lists.
class NumberLists {
 public:
  enum class Ends {
    // A list that begins with a number ends at the next bracket. If the list also has other
    // elements, the cut may be wrong; AreSound then returns false.
    kAtBracket,
    // As kAtBracket, but a list with characters that no number has stays in the text.
    kChecked,
  };

  // Replaces the content of each list that begins with a number by an index, as in [0], [1], ...
  // Returns false if a string or such a list has no end, or if there are more than kMaxJsonValues
  // lists. Does not check that the text is JSON.
  // `text` must outlive this.
  bool Cut(std::string_view text, Ends ends);

  // The text in which indexes replace the lists.
  const std::string& rest() const { return rest_; }
  size_t size() const { return lists_.size(); }
  // Returns true if Cut found too many lists.
  bool is_full() const { return lists_.size() > kMaxJsonValues; }
  // Returns the text between the brackets of a list. Its reader has to check that text.
  std::string_view Take(size_t index);
  // Returns true if all lists that were not taken are JSON. The whole text is JSON if, besides, the
  // taken lists and `rest` are JSON.
  bool AreSound() const;

 private:
  struct List {
    std::string_view text;
    bool is_taken = false;
  };

  std::string rest_;
  std::vector<List> lists_;
};

// The first element of a list that is not a number of the wanted type.
struct NumberFault {
  size_t index = 0;
  // Part of the text that was read.
  std::string_view text;
};

// Packs the numbers of a taken list as T (int32_t, int64_t, float), little-endian. Returns a fault
// if the text is not JSON numbers of T's kind and range, separated by commas. Rounds floats to the
// nearest double and then to the nearest float, as JSON parsers do. A number beyond double's range
// is a fault, and so is an integer beyond 64 bits.
template <typename T>
std::optional<NumberFault> PackNumbers(std::string_view text, std::string* packed);

// Returns the number of elements in a list of numbers. Costs much less than packing them.
size_t CountNumbers(std::string_view text);

}  // namespace lathe::gateway
