// The names that every implementation takes.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace lathe {

// Returns InvalidArgument unless `name` is one of ObjectStore's. Such a name is the same in a URL
// and in a signature, and stays below a directory.
inline absl::Status CheckObjectName(std::string_view name) {
  constexpr std::string_view kAllowed =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._/-";
  const std::string padded = absl::StrCat("/", std::string(name), "/");
  const bool has_bad_part = absl::StrContains(padded, "//") || absl::StrContains(padded, "/./") ||
                            absl::StrContains(padded, "/../");
  if (!has_bad_part && name.find_first_not_of(kAllowed) == std::string_view::npos) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", std::string(name),
                   "' is no name of an object: allowed are letters, digits and . _ - in parts "
                   "between slashes"));
}

}  // namespace lathe
