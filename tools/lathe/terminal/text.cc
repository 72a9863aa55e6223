#include "tools/lathe/terminal/text.h"

#include <locale.h>
#include <wchar.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"

namespace lathe::cli {
namespace {

struct CharacterRange {
  char32_t first;
  char32_t last;
};

// Characters without a glyph: hyphens and joiners that nobody sees, marks of the direction of
// writing, ends of lines and paragraphs, annotations, tags.
constexpr CharacterRange kInvisible[] = {
    {0x00ad, 0x00ad}, {0x034f, 0x034f}, {0x061c, 0x061c}, {0x115f, 0x1160}, {0x17b4, 0x17b5},
    {0x180b, 0x180f}, {0x200b, 0x200f}, {0x2028, 0x202e}, {0x2060, 0x206f}, {0x3164, 0x3164},
    {0xfe00, 0xfe0f}, {0xfeff, 0xfeff}, {0xffa0, 0xffa0}, {0xfff0, 0xfffb}, {0xe0000, 0xe0fff}};

bool IsInvisible(char32_t character) {
  for (const CharacterRange& range : kInvisible) {
    if (range.first <= character && character <= range.last) return true;
  }
  return false;
}

struct Decoded {
  char32_t character;
  std::size_t num_bytes;
};

// Decodes the first character of `text`, which is not empty. Nothing if it is not UTF-8.
std::optional<Decoded> DecodeFirst(std::string_view text) {
  const auto byte = [&text](std::size_t at) { return static_cast<unsigned char>(text[at]); };
  if (byte(0) < 0x80) return Decoded{byte(0), 1};
  const std::size_t num_bytes = byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : 2;
  if (byte(0) < 0xc2 || byte(0) > 0xf4 || text.size() < num_bytes) return std::nullopt;
  char32_t character = byte(0) & (0x7f >> num_bytes);
  for (std::size_t at = 1; at < num_bytes; ++at) {
    if ((byte(at) & 0xc0) != 0x80) return std::nullopt;
    character = character << 6 | (byte(at) & 0x3f);
  }
  constexpr char32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = character >= 0xd800 && character <= 0xdfff;
  if (character < kLeast[num_bytes] || character > 0x10ffff || is_surrogate) return std::nullopt;
  return Decoded{character, num_bytes};
}

// Makes wcwidth know Unicode on this thread, whatever the locale of the process.
class Utf8OnThisThread {
 public:
  Utf8OnThisThread() {
    static const locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
    if (utf8 != nullptr) before_ = uselocale(utf8);
  }
  ~Utf8OnThisThread() {
    if (before_ != nullptr) uselocale(before_);
  }
  Utf8OnThisThread(const Utf8OnThisThread&) = delete;

 private:
  locale_t before_ = nullptr;
};

// Returns the columns of a character; -1: it cannot be shown.
int CharacterWidth(char32_t character) {
  if (IsInvisible(character)) return -1;
  return wcwidth(static_cast<wchar_t>(character));
}

std::string Escape(char32_t character) {
  if (character < 0x100) return absl::StrFormat("\\x%02x", static_cast<uint32_t>(character));
  return absl::StrFormat(character < 0x10000 ? "\\u%04x" : "\\U%08x",
                         static_cast<uint32_t>(character));
}

}  // namespace

bool IsUtf8Locale() {
  for (const char* const name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* const value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    const std::string lower = absl::AsciiStrToLower(value);
    return absl::StrContains(lower, "utf-8") || absl::StrContains(lower, "utf8");
  }
  return false;
}

void UseLocale() {
  const char* const own = setlocale(LC_CTYPE, "");
  if (!IsUtf8Locale() || (own != nullptr && MB_CUR_MAX > 1)) return;
  // ssh passes names of locales on to machines that do not have them.
  if (setlocale(LC_CTYPE, "C.UTF-8") == nullptr) setenv("LC_ALL", "C", /*replace=*/1);
}

std::string SafeText(std::string_view text, bool is_utf8) {
  const Utf8OnThisThread utf8;
  std::string safe;
  while (!text.empty()) {
    const std::optional<Decoded> first = DecodeFirst(text);
    const std::size_t num_bytes = first ? first->num_bytes : 1;
    const bool is_shown =
        first && (first->character < 0x80 ? absl::ascii_isprint(static_cast<unsigned char>(text[0]))
                                          : is_utf8 && CharacterWidth(first->character) >= 0);
    if (is_shown) {
      safe += text.substr(0, num_bytes);
    } else {
      safe += Escape(first ? first->character : static_cast<unsigned char>(text[0]));
    }
    text.remove_prefix(num_bytes);
  }
  return safe;
}

int TextWidth(std::string_view safe) {
  const Utf8OnThisThread utf8;
  int width = 0;
  while (!safe.empty()) {
    const std::optional<Decoded> first = DecodeFirst(safe);
    width += first ? std::max(0, CharacterWidth(first->character)) : 1;
    safe.remove_prefix(first ? first->num_bytes : 1);
  }
  return width;
}

std::string CutText(const std::string& safe, int width) {
  if (TextWidth(safe) <= width) return safe;
  if (width <= 0) return "";
  const Utf8OnThisThread utf8;
  std::string_view rest = safe;
  int left = width - 1;  // one column for the mark
  while (!rest.empty()) {
    const std::optional<Decoded> first = DecodeFirst(rest);
    left -= first ? std::max(0, CharacterWidth(first->character)) : 1;
    if (left < 0) break;
    rest.remove_prefix(first ? first->num_bytes : 1);
  }
  return safe.substr(0, safe.size() - rest.size()) + "~";
}

std::string PadText(const std::string& safe, int width, bool is_right) {
  const std::string cut = CutText(safe, width);
  const std::string fill(static_cast<std::size_t>(std::max(0, width - TextWidth(cut))), ' ');
  return is_right ? fill + cut : cut + fill;
}

}  // namespace lathe::cli
