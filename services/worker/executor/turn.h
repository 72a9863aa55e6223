// What rank 0 tells the others to apply before the next unit. Free of torch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lathe::worker {

// A command as rank 0 was given it.
struct TurnCommand {
  std::string encoded;
};

struct TurnReset {
  int64_t generation = 0;
};

// The job of the version table that every rank does for itself.
struct TurnVersionJob {
  int64_t ticket = 0;
};

// A snapshot or version that rank 0 has written for all.
struct TurnRecoveryJob {
  int64_t number = 0;
  absl::Status status;
};

using TurnItem = std::variant<TurnCommand, TurnReset, TurnVersionJob, TurnRecoveryJob>;

std::string EncodeTurnItems(const std::vector<TurnItem>& items);
// Internal: not what EncodeTurnItems makes.
absl::StatusOr<std::vector<TurnItem>> DecodeTurnItems(std::string_view encoded);

}  // namespace lathe::worker
