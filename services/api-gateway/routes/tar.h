// The parts of a POSIX ustar archive of plain files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace lathe::gateway {

inline constexpr int64_t kTarBlockBytes = 512;

struct TarMember {
  // In the root of the archive.
  std::string name;
  int64_t num_bytes = 0;
};

// One block. InvalidArgument for a name that is empty, over 100 bytes, has a '/' or begins with
// '.'. Sizes from 8 GiB on use the base-256 form that GNU tar and Python read.
absl::StatusOr<std::string> TarHeader(const TarMember& member, absl::Time modified_at);

// Zeros after a member's bytes, to the next block.
std::string TarPadding(int64_t num_bytes);

// Two empty blocks.
std::string TarEnd();

// Of the whole archive.
int64_t TarBytes(const std::vector<TarMember>& members);

}  // namespace lathe::gateway
