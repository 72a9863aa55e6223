// Headers of an uncompressed tar file.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace lathe::gateway {

inline constexpr int64_t kTarBlockBytes = 512;

// A file at the root of an archive.
struct TarMember {
  std::string name;
  int64_t num_bytes = 0;
};

// What precedes the member's bytes: one block, or more for a size that one cannot hold (8 GiB).
// InvalidArgument for a name with a folder in it, a hidden one, or one over 100 bytes.
//
// libarchive writes the headers only: the bytes between them come from the files, at any offset a
// Range asks for, which its stream of a whole archive has no way to give.
absl::StatusOr<std::string> TarHeader(const TarMember& member, absl::Time modified_at);

// Zeros that follow a member of `num_bytes`.
std::string TarPadding(int64_t num_bytes);

// The end of an archive.
std::string TarEnd();

}  // namespace lathe::gateway
