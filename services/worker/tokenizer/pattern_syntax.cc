#include "services/worker/tokenizer/text_pattern.h"

#include <cctype>

#include "absl/status/status.h"
#include "libs/common/status_macros.h"

namespace lathe::worker {
namespace {

// Oniguruma's \w, inside and outside a class. Outside, its table of the first 256 characters adds
// six: ² ³ ¹ ¼ ½ ¾.
constexpr std::string_view kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
constexpr std::string_view kWordAlone =
    R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";

absl::Status NotSupported(std::string_view construct) {
  return absl::InvalidArgumentError("\"" + std::string(construct) +
                                    "\" in a pattern is not supported");
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Reads the pattern from left to right and writes its translation.
class Translator {
 public:
  explicit Translator(std::string_view pattern) : rest_(pattern) {}

  absl::StatusOr<std::string> Run() {
    while (!rest_.empty()) RETURN_IF_ERROR(Item());
    return std::move(out_);
  }

 private:
  absl::Status Item() {
    switch (rest_[0]) {
      case '\\':
        return Escape(/*in_class=*/false);
      case '[':
        return Class();
      case '(':
        return Group();
      case '{':
        return Interval();
      default:
        return Copy(1);
    }
  }

  absl::Status Copy(size_t num_bytes) {
    out_ += rest_.substr(0, num_bytes);
    rest_.remove_prefix(num_bytes);
    return absl::OkStatus();
  }

  absl::Status Write(std::string_view text, size_t num_bytes) {
    out_ += text;
    rest_.remove_prefix(num_bytes);
    return absl::OkStatus();
  }

  // Rejects inline options, names and verbs, which differ between Oniguruma and PCRE2.
  absl::Status Group() {
    if (!rest_.starts_with("(?") && !rest_.starts_with("(*")) return Copy(1);
    for (const std::string_view opening : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:"}) {
      if (rest_.starts_with(opening)) return Copy(opening.size());
    }
    return NotSupported(rest_.substr(0, 3));
  }

  // Rejects {n}? and {n,m}+, which repeat a repetition in Oniguruma but are lazy and possessive in
  // PCRE2. Also rejects {,m}, which is plain text in PCRE2.
  absl::Status Interval() {
    size_t end = 1;
    while (end < rest_.size() && (IsDigit(rest_[end]) || rest_[end] == ',')) ++end;
    if (end == 1 || end == rest_.size() || rest_[end] != '}') {
      if (end > 1) return NotSupported(rest_.substr(0, end));
      return Copy(1);
    }
    const std::string_view interval = rest_.substr(0, end + 1);
    const char after = end + 1 < rest_.size() ? rest_[end + 1] : ' ';
    const bool is_fixed = interval.find(',') == std::string_view::npos;
    if (interval[1] == ',' || after == '+' || (after == '?' && is_fixed)) {
      return NotSupported(rest_.substr(0, end + 2));
    }
    return Copy(interval.size());
  }

  // Rejects nested classes and &&: they are set operations in Oniguruma and plain text in PCRE2.
  absl::Status Class() {
    RETURN_IF_ERROR(Copy(rest_.starts_with("[^") ? 2 : 1));
    if (rest_.starts_with("]")) return NotSupported("[]");
    while (!rest_.empty() && rest_[0] != ']') {
      if (rest_[0] == '[' || rest_.starts_with("&&")) return NotSupported(rest_.substr(0, 2));
      RETURN_IF_ERROR(rest_[0] == '\\' ? Escape(/*in_class=*/true) : Copy(1));
    }
    if (rest_.empty()) return absl::InvalidArgumentError("a pattern has a class without its end");
    return Copy(1);
  }

  absl::Status Escape(bool in_class) {
    if (rest_.size() < 2) return absl::InvalidArgumentError("a pattern ends in a backslash");
    const char kind = rest_[1];
    switch (kind) {
      case 's':
        return Write(R"(\p{White_Space})", 2);
      case 'S':
        return Write(R"(\P{White_Space})", 2);
      case 'w':
        return Write(in_class ? std::string(kWord) : "[" + std::string(kWordAlone) + "]", 2);
      case 'W':
        if (in_class) return NotSupported(R"([\W])");
        return Write("[^" + std::string(kWordAlone) + "]", 2);
      case 'v':
        return Write(R"(\x0b)", 2);
      case 'p':
      case 'P':
        return Property();
      case 'x':
        return HexByte();
      case 'u':
        return HexCharacter();
      default:
        break;
    }
    const bool is_shared = std::string_view("dDnrtf").find(kind) != std::string_view::npos;
    const bool is_anchor = !in_class && (kind == 'A' || kind == 'z');
    if (is_shared || is_anchor || std::ispunct(static_cast<unsigned char>(kind))) return Copy(2);
    return NotSupported(rest_.substr(0, 2));
  }

  // Treats a long name as a script. Without the prefix "sc:", PCRE2 would match script extensions.
  absl::Status Property() {
    const size_t end = rest_.find('}');
    if (rest_.size() < 4 || rest_[2] != '{' || end == std::string_view::npos) {
      return NotSupported(rest_.substr(0, 3));
    }
    std::string_view name = rest_.substr(3, end - 3);
    std::string translated(rest_.substr(0, 3));
    if (name.starts_with("^")) {
      translated += '^';
      name.remove_prefix(1);
    }
    if (name.size() > 2 && name != "Alphabetic" && name != "White_Space") translated += "sc:";
    translated += name;
    return Write(translated + "}", end + 1);
  }

  bool AreHexDigits(size_t begin, size_t end) const {
    if (end > rest_.size()) return false;
    for (size_t i = begin; i < end; ++i) {
      if (!std::isxdigit(static_cast<unsigned char>(rest_[i]))) return false;
    }
    return true;
  }

  // \x{...} is a character for both. \xHH above 7f is a byte in Oniguruma and a character in PCRE2.
  absl::Status HexByte() {
    if (rest_.substr(2).starts_with("{")) return Copy(3);
    if (AreHexDigits(2, 4) && rest_[2] < '8') return Copy(4);
    return NotSupported(rest_.substr(0, 4));
  }

  absl::Status HexCharacter() {
    if (!AreHexDigits(2, 6)) return NotSupported(rest_.substr(0, 6));
    return Write("\\x{" + std::string(rest_.substr(2, 4)) + "}", 6);
  }

  std::string_view rest_;
  std::string out_;
};

}  // namespace

absl::StatusOr<std::string> ToPcre2Pattern(std::string_view pattern) {
  return Translator(pattern).Run();
}

}  // namespace lathe::worker
