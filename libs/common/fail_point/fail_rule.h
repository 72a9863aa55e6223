// Parses the rules that a test sets for fail points.
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

  size_t point = 0;  // index of its name in FailPointList()
  Action action = Action::kKill;
  std::chrono::milliseconds sleep{0};
  int error_number = 0;
  std::optional<int64_t> value;  // if set, fires only at passes with this value
  // Fires at passes first to last, counted from 1, in process `pid` (0: any process).
  int64_t first = 1;
  int64_t last = INT64_MAX;
  double probability = 1;
  int64_t pid = 0;
};

// Parses rules separated by commas or white space; fail_point.h has the grammar. Returns
// InvalidArgument, which quotes the bad rule.
absl::StatusOr<std::vector<FailRule>> ParseFailRules(std::string_view text);

}  // namespace lathe
