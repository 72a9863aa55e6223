#include "services/worker/tokenizer/unicode.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/uniset.h>
#include <unicode/utf8.h>

#include "absl/strings/str_format.h"

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

}  // namespace lathe::worker
