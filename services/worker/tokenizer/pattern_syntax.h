// Translates the regular expressions of tokenizer.json to PCRE2 syntax.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace lathe::worker {

// Hugging Face compiles patterns with Oniguruma in Ruby syntax. The result has the same meaning in
// PCRE2 with UTF, UCP and MULTILINE. White space and word characters become the Unicode properties
// that Oniguruma uses. InvalidArgument names a construct whose meaning differs or may differ.
absl::StatusOr<std::string> ToPcre2Pattern(std::string_view pattern);

}  // namespace lathe::worker
