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

// Returns the header that precedes the member's bytes: one 512-byte block, or more for a size of 8
// GiB or above. InvalidArgument for a name that is empty, begins with a dot, contains a slash or
// has more than 100 bytes.
//
// libarchive writes only the headers. The gateway reads the bytes between them from the files,
// because a Range may start at any offset and libarchive's stream of an archive cannot seek.
absl::StatusOr<std::string> TarHeader(const TarMember& member, absl::Time modified_at);

// Returns the zeros that follow a member of `num_bytes`.
std::string TarPadding(int64_t num_bytes);

// Returns the end of an archive.
std::string TarEnd();

}  // namespace lathe::gateway
