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
#include "absl/strings/str_cat.h"
#include "libs/common/strings/string_view.h"

namespace lathe::gateway {
namespace {

bool IsDigit(char c) { return static_cast<unsigned char>(c - '0') < 10; }
bool IsSpace(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// Number of decimal digits that always fit in 64 bits.
constexpr int64_t kMaxDigits = 18;

// Each reader below moves `at` forward and never reads at or behind `end`.
ABSL_ATTRIBUTE_ALWAYS_INLINE inline void SkipSpace(const char*& at, const char* end) {
  while (at < end && IsSpace(*at)) ++at;
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

// Reads -?(0|[1-9][0-9]*). Returns false for other texts and for more than kMaxDigits digits.
ABSL_ATTRIBUTE_ALWAYS_INLINE inline bool ReadInteger(const char*& at, const char* end,
                                                     int64_t& number) {
  const bool is_negative = at < end && *at == '-';
  if (is_negative) ++at;
  const bool starts_with_zero = at < end && *at == '0';
  uint64_t value = 0;
  const int64_t num_digits = ReadDigits(at, end, value);
  if (num_digits == 0 || num_digits > kMaxDigits) return false;
  if (starts_with_zero && num_digits > 1) return false;
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
constexpr uint64_t kMaxExactInteger = uint64_t{1} << 53;

// A decimal number: mantissa * 10^exponent.
struct Decimal {
  uint64_t mantissa = 0;  // may have wrapped when num_digits > kMaxDigits
  int64_t num_digits = 0;
  int64_t exponent = 0;
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
    if (num_digits == 0 || num_digits > 6) return false;
    decimal.exponent +=
        is_negative ? -static_cast<int64_t>(exponent) : static_cast<int64_t>(exponent);
  }
  return true;
}

template <>
bool ReadNumber<float>(const char*& at, const char* end, float& number) {
  const char* const begin = at;
  Decimal decimal;
  if (!ReadDecimal(at, end, decimal)) return false;
  double value = 0;
  if (decimal.is_integer) {
    // Longer integers are left to the JSON parser.
    if (decimal.num_digits > kMaxDigits) return false;
    const auto integer = static_cast<int64_t>(decimal.mantissa);
    value = static_cast<double>(decimal.is_negative ? -integer : integer);
  } else if (decimal.num_digits <= kMaxDigits && decimal.mantissa <= kMaxExactInteger &&
             std::abs(decimal.exponent) <= kMaxExactPower) {
    // Both operands are exact, so the result is rounded once.
    value = static_cast<double>(decimal.mantissa);
    value = decimal.exponent < 0 ? value / kPowersOfTen[-decimal.exponent]
                                 : value * kPowersOfTen[decimal.exponent];
    if (decimal.is_negative) value = -value;
  } else {
    const auto [rest, error] = std::from_chars(begin, at, value);
    if (error != std::errc() || rest != at) return false;
  }
  number = static_cast<float>(value);
  return true;
}

// Returns the offset behind the string whose opening quote is at `at`; npos if it has no end.
size_t SkipString(std::string_view text, size_t at) {
  for (++at; at < text.size(); ++at) {
    if (text[at] == '"') return at + 1;
    if (text[at] == '\\') ++at;
  }
  return std::string_view::npos;
}

bool BeginsWithNumber(std::string_view text, size_t at) {
  while (at < text.size() && IsSpace(text[at])) ++at;
  return at < text.size() && (IsDigit(text[at]) || text[at] == '-');
}

}  // namespace

bool CutNumberLists(std::string_view piece, std::string* rest,
                    std::vector<std::string_view>* lists) {
  size_t kept = 0;  // end of the part that is in `rest`
  size_t at = 0;
  while (at < piece.size()) {
    if (piece[at] == '"') {
      at = SkipString(piece, at);
      if (at == std::string_view::npos) return false;
    } else if (piece[at] == '[' && BeginsWithNumber(piece, at + 1)) {
      const size_t end = piece.find(']', at);
      if (end == std::string_view::npos) return false;
      absl::StrAppend(rest, AbslView(piece.substr(kept, at + 1 - kept)), lists->size());
      lists->push_back(piece.substr(at + 1, end - at - 1));
      kept = end;
      at = end + 1;
    } else {
      ++at;
    }
  }
  absl::StrAppend(rest, AbslView(piece.substr(kept)));
  return true;
}

template <typename T>
bool PackNumbers(std::string_view text, std::string* packed) {
  constexpr size_t kBufferNumbers = 512;
  T numbers[kBufferNumbers];
  size_t size = 0;
  const char* at = text.data();
  const char* const end = at + text.size();
  packed->clear();
  while (true) {
    SkipSpace(at, end);
    if (!ReadNumber(at, end, numbers[size])) return false;
    SkipSpace(at, end);
    const bool is_last = at == end;
    if (++size == kBufferNumbers || is_last) {
      if (packed->empty() && !is_last) {
        // Reserves as much as the whole text needs if the rest is like the first numbers.
        const auto num_read = static_cast<size_t>(at - text.data());
        packed->reserve((size * text.size() / num_read + kBufferNumbers) * sizeof(T));
      }
      packed->append(reinterpret_cast<const char*>(numbers), size * sizeof(T));
      size = 0;
    }
    if (is_last) return true;
    if (*at++ != ',') return false;
  }
}

template bool PackNumbers<int32_t>(std::string_view text, std::string* packed);
template bool PackNumbers<int64_t>(std::string_view text, std::string* packed);
template bool PackNumbers<float>(std::string_view text, std::string* packed);

}  // namespace lathe::gateway
