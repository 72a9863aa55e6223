// Access to single characters of valid UTF-8 text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lathe::worker {

// Bytes [begin, end) of a text.
struct TextRange {
  size_t begin = 0;
  size_t end = 0;

  size_t size() const { return end - begin; }
};

inline std::string_view Part(std::string_view text, const TextRange& range) {
  return text.substr(range.begin, range.size());
}

// Returns the length in bytes of the character whose first byte is `lead`.
inline size_t CharacterBytes(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

// Returns the character at `position` and moves `position` behind it.
inline char32_t NextCharacter(std::string_view text, size_t& position) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const size_t num_bytes = CharacterBytes(text[position]);
  char32_t character = num_bytes == 1 ? byte(position) : byte(position) & (0x7f >> num_bytes);
  for (size_t i = 1; i < num_bytes; ++i) character = (character << 6) | (byte(position + i) & 0x3f);
  position += num_bytes;
  return character;
}

// Returns the character that ends at `position` and moves `position` to its beginning.
inline char32_t PreviousCharacter(std::string_view text, size_t& position) {
  do {
    --position;
  } while ((text[position] & 0xc0) == 0x80);
  size_t end = position;
  return NextCharacter(text, end);
}

// Returns the last border between characters at or before `position`.
inline size_t CharacterBorder(std::string_view text, size_t position) {
  if (position >= text.size()) return text.size();
  while (position > 0 && (text[position] & 0xc0) == 0x80) --position;
  return position;
}

}  // namespace lathe::worker
