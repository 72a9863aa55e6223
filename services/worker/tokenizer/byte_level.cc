#include "services/worker/tokenizer/byte_level.h"

#include <array>

#include "services/worker/tokenizer/text.h"

namespace lathe::worker {
namespace {

struct Table {
  std::array<std::string, 256> character_of;  // UTF-8, by byte
  std::array<int, 0x200> byte_of;             // by character, -1 for none
};

// Returns the UTF-8 of a character in [U+0080, U+0800).
std::string TwoBytes(char32_t character) {
  return {static_cast<char>(0xc0 | (character >> 6)), static_cast<char>(0x80 | (character & 0x3f))};
}

// Maps printable bytes to themselves, and the others in order to U+0100 and up.
Table MakeTable() {
  Table table;
  table.byte_of.fill(-1);
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool is_printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) ||
                              (byte >= 0xae && byte <= 0xff);
    const char32_t character = is_printable ? static_cast<char32_t>(byte) : next++;
    table.byte_of[character] = byte;
    table.character_of[byte] =
        character < 0x80 ? std::string(1, static_cast<char>(character)) : TwoBytes(character);
  }
  return table;
}

const Table& ByteTable() {
  static const Table table = MakeTable();
  return table;
}

}  // namespace

void AppendByteLevel(std::string_view text, std::string& out) {
  const Table& table = ByteTable();
  for (const char byte : text) out += table.character_of[static_cast<unsigned char>(byte)];
}

std::string FromByteLevel(std::string_view token) {
  const Table& table = ByteTable();
  std::string bytes;
  for (size_t position = 0; position < token.size();) {
    const char32_t character = NextCharacter(token, position);
    const int byte = character < table.byte_of.size() ? table.byte_of[character] : -1;
    if (byte < 0) return std::string(token);
    bytes.push_back(static_cast<char>(byte));
  }
  return bytes;
}

}  // namespace lathe::worker
