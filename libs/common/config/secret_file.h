// Secrets in files, as orchestrators mount them.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace lathe {

// Bound of a file with one secret.
inline constexpr int kMaxSecretBytes = 64 << 10;

// Returns the only line of the file, without white space at its ends. NotFound if there is no such
// file. InvalidArgument, which names the path and never the content: it cannot be read, is empty,
// has more than kMaxSecretBytes or more than one line.
absl::StatusOr<std::string> LoadSecretFile(const std::string& path);

}  // namespace lathe
