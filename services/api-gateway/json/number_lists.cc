// Scans every byte of a large body.
#include "services/api-gateway/json/number_lists.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <type_traits>

#include "absl/base/attributes.h"
#include "absl/strings/charconv.h"
#include "absl/strings/str_cat.h"
#include "libs/common/strings/string_view.h"
#include "services/api-gateway/json/list_scanner.h"

namespace lathe::gateway {
namespace {

bool IsDigit(char c) { return static_cast<unsigned char>(c - '0') < 10; }

constexpr std::string_view kListCharacters = "0123456789+-.eE, \t\n\r";

// Number of decimal digits that always fit in 64 bits. Longer integers are rare.
constexpr int64_t kMaxDigits = 18;

// Each reader below moves `at` forward and never reads at or behind `end`.
ABSL_ATTRIBUTE_ALWAYS_INLINE inline void SkipSpace(const char*& at, const char* end) {
  while (at < end && IsJsonSpace(*at)) ++at;
}

constexpr uint64_t kPowers[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};

// Appends up to eight digits at once to `value` and returns their number. Has no branch per digit:
// numbers differ in length, so the branch at a loop's end would be mispredicted. Needs eight
// readable bytes.
ABSL_ATTRIBUTE_ALWAYS_INLINE inline int64_t ReadUpToEightDigits(const char* at, uint64_t& value) {
  constexpr uint64_t kEach = 0x0101010101010101;
  uint64_t text;
  std::memcpy(&text, at, sizeof(text));
  const uint64_t digits = text - '0' * kEach;  // correct for bytes before the first non-digit
  const uint64_t others = (digits | (text + 0x46 * kEach)) & (0x80 * kEach);
  const int64_t num_digits = others == 0 ? 8 : std::countr_zero(others) / 8;
  if (num_digits == 0) return 0;
  // Moves the digits to the last bytes, with zeros before them. Then combines pairs, groups of four
  // and all eight.
  uint64_t sum = digits << (64 - 8 * num_digits);
  sum = sum * 10 + (sum >> 8);
  constexpr uint64_t kPairs = 0x000000ff000000ff;
  sum = ((sum & kPairs) * (100 + (uint64_t{1000000} << 32)) +
         ((sum >> 16) & kPairs) * (1 + (uint64_t{10000} << 32))) >>
        32;
  value = value * kPowers[num_digits] + sum;
  return num_digits;
}

// Appends digits to `value`, which wraps. Returns their number.
ABSL_ATTRIBUTE_ALWAYS_INLINE inline int64_t ReadDigits(const char*& at, const char* end,
                                                       uint64_t& value) {
  const char* const begin = at;
  while (end - at >= 8) {
    const int64_t num_digits = ReadUpToEightDigits(at, value);
    at += num_digits;
    if (num_digits < 8) return at - begin;
  }
  for (; at < end && IsDigit(*at); ++at) value = value * 10 + static_cast<uint64_t>(*at - '0');
  return at - begin;
}

// Parses all of [begin, end) as T. Returns false if T does not hold it.
template <typename T>
bool ReadExactly(const char* begin, const char* end, T& number) {
  const auto [rest, error] = std::from_chars(begin, end, number);
  return error == std::errc() && rest == end;
}

// Reads -?(0|[1-9][0-9]*). Returns false for other texts and for integers beyond int64.
ABSL_ATTRIBUTE_ALWAYS_INLINE inline bool ReadInteger(const char*& at, const char* end,
                                                     int64_t& number) {
  const char* const begin = at;
  const bool is_negative = at < end && *at == '-';
  if (is_negative) ++at;
  const bool starts_with_zero = at < end && *at == '0';
  uint64_t value = 0;
  const int64_t num_digits = ReadDigits(at, end, value);
  if (num_digits == 0) return false;
  if (starts_with_zero && num_digits > 1) return false;
  if (num_digits > kMaxDigits) return ReadExactly(begin, at, number);
  number = is_negative ? -static_cast<int64_t>(value) : static_cast<int64_t>(value);
  return true;
}

template <typename T>
bool ReadNumber(const char*& at, const char* end, T& number) {
  int64_t wide = 0;
  if (!ReadInteger(at, end, wide)) return false;
  number = static_cast<T>(wide);
  return number == wide;
}

// Powers of ten that a double holds exactly.
constexpr double kPowersOfTen[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                   1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                   1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
constexpr int64_t kMaxExactPower = 22;
// Longer exponents are rare.
constexpr int64_t kMaxExponentDigits = 6;
constexpr int64_t kLongExponent = std::numeric_limits<int32_t>::max();
constexpr uint64_t kMaxExactInteger = uint64_t{1} << 53;

// A decimal number: mantissa * 10^exponent.
struct Decimal {
  uint64_t mantissa = 0;  // may have wrapped when num_digits > kMaxDigits
  int64_t num_digits = 0;
  int64_t exponent = 0;  // kLongExponent: more than kMaxExponentDigits digits were written
  bool is_negative = false;
  bool is_integer = true;
};

ABSL_ATTRIBUTE_ALWAYS_INLINE inline bool ReadDecimal(const char*& at, const char* end,
                                                     Decimal& decimal) {
  if (at < end && *at == '-') {
    decimal.is_negative = true;
    ++at;
  }
  const bool starts_with_zero = at < end && *at == '0';
  decimal.num_digits = ReadDigits(at, end, decimal.mantissa);
  if (decimal.num_digits == 0 || (starts_with_zero && decimal.num_digits > 1)) return false;
  if (at < end && *at == '.') {
    ++at;
    decimal.is_integer = false;
    const int64_t num_digits = ReadDigits(at, end, decimal.mantissa);
    if (num_digits == 0) return false;
    decimal.num_digits += num_digits;
    decimal.exponent = -num_digits;
  }
  if (at < end && (*at == 'e' || *at == 'E')) {
    ++at;
    decimal.is_integer = false;
    const bool is_negative = at < end && *at == '-';
    if (at < end && (*at == '-' || *at == '+')) ++at;
    uint64_t exponent = 0;
    const int64_t num_digits = ReadDigits(at, end, exponent);
    if (num_digits == 0) return false;
    if (num_digits > kMaxExponentDigits) {
      decimal.exponent = kLongExponent;
      return true;
    }
    decimal.exponent +=
        is_negative ? -static_cast<int64_t>(exponent) : static_cast<int64_t>(exponent);
  }
  return true;
}

// Converts the JSON number [begin, end), which is no integer. Numbers below double's range become
// 0.
bool ReadDouble(const char* begin, const char* end, double& value) {
  if (ReadExactly(begin, end, value)) return true;
  absl::from_chars(begin, end, value);
  return std::abs(value) < 1;
}

// Converts a JSON integer of many digits. Returns false beyond 64 bits, as JSON parsers do.
bool ReadLongInteger(const char* begin, const char* end, double& value) {
  int64_t integer = 0;
  uint64_t natural = 0;
  if (!ReadExactly(begin, end, integer) && !ReadExactly(begin, end, natural)) return false;
  value = integer != 0 ? static_cast<double>(integer) : static_cast<double>(natural);
  return true;
}

template <>
bool ReadNumber<float>(const char*& at, const char* end, float& number) {
  const char* const begin = at;
  Decimal decimal;
  if (!ReadDecimal(at, end, decimal)) return false;
  double value = 0;
  if (decimal.is_integer && decimal.num_digits > kMaxDigits) {
    if (!ReadLongInteger(begin, at, value)) return false;
  } else if (decimal.is_integer) {
    const auto integer = static_cast<int64_t>(decimal.mantissa);
    value = static_cast<double>(decimal.is_negative ? -integer : integer);
  } else if (decimal.num_digits <= kMaxDigits && decimal.mantissa <= kMaxExactInteger &&
             std::abs(decimal.exponent) <= kMaxExactPower) {
    // Both operands are exact, so the result is rounded once.
    value = static_cast<double>(decimal.mantissa);
    value = decimal.exponent < 0 ? value / kPowersOfTen[-decimal.exponent]
                                 : value * kPowersOfTen[decimal.exponent];
    if (decimal.is_negative) value = -value;
  } else if (!ReadDouble(begin, at, value)) {
    return false;
  }
  number = static_cast<float>(value);
  return true;
}

bool BeginsWithNumber(std::string_view text, size_t at) {
  while (at < text.size() && IsJsonSpace(text[at])) ++at;
  return at < text.size() && (IsDigit(text[at]) || text[at] == '-');
}

// Returns the fault at element `index` of `list`, in which a reader has come to `at`.
NumberFault FaultAt(std::string_view list, const char* at, size_t index) {
  const auto offset = static_cast<size_t>(at - list.data());
  const size_t comma = offset == 0 ? offset : list.rfind(',', offset - 1) + 1;
  std::string_view text = list.substr(comma, list.find(',', comma) - comma);
  while (!text.empty() && IsJsonSpace(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsJsonSpace(text.back())) text.remove_suffix(1);
  return {index, text};
}

}  // namespace

bool NumberLists::Cut(std::string_view text, Ends ends) {
  rest_.clear();
  lists_.clear();
  size_t kept = 0;  // end of the part that is in `rest_`
  size_t at = 0;
  while (at < text.size()) {
    if (text[at] == '"') {
      at = SkipJsonString(text, at);
      if (at == std::string_view::npos) return false;
    } else if (text[at] == '[' && BeginsWithNumber(text, at + 1)) {
      const size_t end = ends == Ends::kChecked ? text.find_first_not_of(kListCharacters, at + 1)
                                                : text.find(']', at + 1);
      if (end == std::string_view::npos) return false;
      if (text[end] != ']') {
        at = end;  // what lies between is no bracket and no quote
        continue;
      }
      const std::string_view list = text.substr(at + 1, end - at - 1);
      ++at;
      absl::StrAppend(&rest_, AbslView(text.substr(kept, at - kept)), lists_.size());
      lists_.push_back({list});
      if (is_full()) return false;
      kept = end;
      at = end + 1;
    } else {
      ++at;
    }
  }
  absl::StrAppend(&rest_, AbslView(text.substr(kept)));
  return true;
}

std::string_view NumberLists::Take(size_t index) {
  lists_[index].is_taken = true;
  return lists_[index].text;
}

bool NumberLists::AreSound() const {
  std::string ignored;
  return std::all_of(lists_.begin(), lists_.end(), [&ignored](const List& list) {
    return list.is_taken || !PackNumbers<float>(list.text, &ignored);
  });
}

size_t CountNumbers(std::string_view text) {
  return 1 + static_cast<size_t>(std::count(text.begin(), text.end(), ','));
}

template <typename T>
std::optional<NumberFault> PackNumbers(std::string_view text, std::string* packed) {
  constexpr size_t kBufferNumbers = 512;
  T numbers[kBufferNumbers];
  size_t size = 0;
  const char* at = text.data();
  const char* const end = at + text.size();
  packed->clear();
  while (true) {
    SkipSpace(at, end);
    if (!ReadNumber(at, end, numbers[size])) break;
    SkipSpace(at, end);
    const bool is_last = at == end;
    if (!is_last && *at != ',') break;
    if (++size == kBufferNumbers || is_last) {
      if (packed->empty() && !is_last) {
        // Reserves as much as the whole text needs if the rest is like the first numbers.
        const auto num_read = static_cast<size_t>(at - text.data());
        packed->reserve((size * text.size() / num_read + kBufferNumbers) * sizeof(T));
      }
      packed->append(reinterpret_cast<const char*>(numbers), size * sizeof(T));
      size = 0;
    }
    if (is_last) return std::nullopt;
    ++at;
  }
  return FaultAt(text, at, packed->size() / sizeof(T) + size);
}

template std::optional<NumberFault> PackNumbers<int32_t>(std::string_view text,
                                                         std::string* packed);
template std::optional<NumberFault> PackNumbers<int64_t>(std::string_view text,
                                                         std::string* packed);
template std::optional<NumberFault> PackNumbers<float>(std::string_view text, std::string* packed);

}  // namespace lathe::gateway
