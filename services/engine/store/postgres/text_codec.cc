#include "services/engine/store/postgres/text_codec.h"

#include <cstddef>
#include <cstdint>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace lathe::engine {
namespace {

// "Start of heading". The engine's own texts never begin with it, and a client's text that does is
// encoded too.
constexpr char kMark = '\x01';

// Returns the length of the UTF-8 character at the start of `text`, or 0 when there is none (RFC
// 3629, section 4).
size_t CharacterLength(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  // No overlong forms, no surrogates, nothing above U+10FFFF.
  const uint8_t low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const uint8_t high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (byte(1) < low || byte(1) > high) return 0;
  for (size_t i = 2; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  return length;
}

bool IsStorable(std::string_view text) {
  if (!text.empty() && text[0] == kMark) return false;
  while (!text.empty()) {
    const size_t length = CharacterLength(text);
    if (length == 0 || text[0] == '\0') return false;
    text.remove_prefix(length);
  }
  return true;
}

}  // namespace

std::string EncodeText(std::string_view text) {
  if (IsStorable(text)) return std::string(text);
  return absl::StrCat(std::string(1, kMark), absl::BytesToHexString({text.data(), text.size()}));
}

std::string DecodeText(std::string_view stored) {
  if (stored.empty() || stored[0] != kMark) return std::string(stored);
  return absl::HexStringToBytes({stored.data() + 1, stored.size() - 1});
}

}  // namespace lathe::engine
