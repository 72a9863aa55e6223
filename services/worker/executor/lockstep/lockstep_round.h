// The items that rank 0 sends to the other ranks to apply before the next unit. Does not include
// torch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lathe::worker {

// A command in the form in which rank 0 got it.
struct RoundCommand {
  std::string encoded;
};

struct RoundReset {
  int64_t generation = 0;
};

// A job of the version table, which every rank does for itself.
struct RoundVersionJob {
  int64_t ticket = 0;
};

// A snapshot or version that rank 0 has written for all ranks.
struct RoundRecoveryJob {
  int64_t number = 0;
  absl::Status status;
};

// A save that rank 0 no longer holds.
struct RoundSave {
  int64_t num_bytes = 0;
};

using RoundItem =
    std::variant<RoundCommand, RoundReset, RoundVersionJob, RoundRecoveryJob, RoundSave>;

std::string EncodeRoundItems(const std::vector<RoundItem>& items);
// Internal: `encoded` is not a result of EncodeRoundItems.
absl::StatusOr<std::vector<RoundItem>> DecodeRoundItems(std::string_view encoded);

}  // namespace lathe::worker
