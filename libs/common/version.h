// The release of a Lathe process, for people. protocol.h says which releases work together.
#pragma once

#include <string_view>

namespace lathe {

inline constexpr std::string_view kVersion = "0.1.0";

}  // namespace lathe
