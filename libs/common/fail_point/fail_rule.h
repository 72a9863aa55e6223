// One line of what a test asks of a fail point.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace lathe {

struct FailRule {
  enum class Action { kKill, kStop, kAbort, kSegv, kSleep, kError, kSkip };

  size_t point = 0;  // place of its name in FailPointList()
  Action action = Action::kKill;
  std::chrono::milliseconds sleep{0};
  int error_number = 0;
  std::optional<int64_t> value;  // fires at passes with it
  // Fires at passes first .. last, counted from 1, of process `pid` (0: any).
  int64_t first = 1;
  int64_t last = INT64_MAX;
  double probability = 1;
  int64_t pid = 0;
};

// Rules separated by commas or white space; the grammar is in fail_point.h. InvalidArgument quotes
// the rule that is wrong.
absl::StatusOr<std::vector<FailRule>> ParseFailRules(std::string_view text);

}  // namespace lathe
