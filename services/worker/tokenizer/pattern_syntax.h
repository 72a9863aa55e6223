// From the regular expressions of tokenizer.json to those of PCRE2.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace lathe::worker {

// Hugging Face compiles them with Oniguruma in Ruby's syntax. The result means the same to PCRE2
// with UTF, UCP and MULTILINE: white space and word characters become the Unicode properties they
// are there. InvalidArgument naming a construct whose meaning differs or is not known to agree.
absl::StatusOr<std::string> ToPcre2Pattern(std::string_view pattern);

}  // namespace lathe::worker
