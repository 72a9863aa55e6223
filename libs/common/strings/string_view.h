// Converts between std::string_view and Debian's absl::string_view, which is a type of its own.
#pragma once

#include <string_view>

#include "absl/strings/string_view.h"

namespace lathe {

inline absl::string_view AbslView(std::string_view text) { return {text.data(), text.size()}; }
inline std::string_view StdView(absl::string_view text) { return {text.data(), text.size()}; }

}  // namespace lathe
