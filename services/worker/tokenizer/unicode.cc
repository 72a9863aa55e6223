#include "services/worker/tokenizer/unicode.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/uniset.h>
#include <unicode/utf8.h>
#include <array>

#include "absl/strings/str_format.h"
#include "services/worker/tokenizer/text.h"

namespace lathe::worker {

namespace {

const icu::Normalizer2* WholeUnicode(NormalForm form, UErrorCode& status) {
  switch (form) {
    case NormalForm::kNfc:
      return icu::Normalizer2::getNFCInstance(status);
    case NormalForm::kNfd:
      return icu::Normalizer2::getNFDInstance(status);
    case NormalForm::kNfkc:
      return icu::Normalizer2::getNFKCInstance(status);
    case NormalForm::kNfkd:
      return icu::Normalizer2::getNFKDInstance(status);
  }
  return nullptr;
}

// Returns the characters of Unicode 9, which are the ones that Hugging Face's tokenizers normalize.
// Models were trained on later characters as written.
const icu::UnicodeSet& NormalizedCharacters(UErrorCode& status) {
  static UErrorCode parsed = U_ZERO_ERROR;
  static const auto* const characters = [] {
    auto* set = new icu::UnicodeSet(icu::UnicodeString("[:age=9.0:]"), parsed);
    return set->freeze();
  }();
  if (U_FAILURE(parsed)) status = parsed;
  return *characters;
}

UChar32 ToIcu(char32_t character) { return static_cast<UChar32>(character); }

}  // namespace

absl::StatusOr<std::string> Normalize(std::string_view text, NormalForm form) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* const whole = WholeUnicode(form, status);
  const icu::UnicodeSet& characters = NormalizedCharacters(status);
  std::string normal;
  normal.reserve(text.size());
  if (U_SUCCESS(status)) {
    icu::StringByteSink<std::string> sink(&normal);
    icu::FilteredNormalizer2(*whole, characters)
        .normalizeUTF8(0, icu::StringPiece(text.data(), static_cast<int32_t>(text.size())), sink,
                       /*edits=*/nullptr, status);
  }
  if (U_SUCCESS(status)) return normal;
  return absl::InternalError(absl::StrFormat("cannot normalize text: %s", u_errorName(status)));
}

bool IsWhiteSpace(char32_t character) { return u_isUWhiteSpace(ToIcu(character)); }

bool IsNumeric(char32_t character) { return (U_GET_GC_MASK(ToIcu(character)) & U_GC_N_MASK) != 0; }

bool IsWord(char32_t character) {
  constexpr uint32_t kCategories = U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK;
  return u_hasBinaryProperty(ToIcu(character), UCHAR_ALPHABETIC) ||
         (U_GET_GC_MASK(ToIcu(character)) & kCategories) != 0 ||
         u_hasBinaryProperty(ToIcu(character), UCHAR_JOIN_CONTROL);
}

size_t FirstInvalidByte(std::string_view text) {
  const char* const bytes = text.data();
  const size_t size = text.size();
  for (size_t position = 0; position < size;) {
    const size_t begin = position;
    UChar32 character;
    U8_NEXT(bytes, position, size, character);
    if (character < 0) return begin;
  }
  return std::string_view::npos;
}

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
