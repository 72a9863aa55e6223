// Converts text from a flag, the environment or a file into a typed variable.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace lathe {

// Variable that an option fills.
using OptionTarget =
    std::variant<std::string*, int*, int64_t*, double*, bool*, absl::Duration*,
                 std::vector<std::string>*, std::vector<int>*, std::vector<double>*>;

bool IsList(const OptionTarget& target);

// Returns InvalidArgument, e.g. "'x' is not an integer", when `values` do not fit the target. All
// types but lists take exactly one value. The only value of a list is split at its commas unless it
// `keeps_commas`. Durations look like "1.5s", "200ms", "2h".
absl::Status SetOption(const OptionTarget& target, const std::vector<std::string>& values,
                       bool keeps_commas = false);

// Returns the current value in the form that SetOption reads.
std::string OptionText(const OptionTarget& target);

}  // namespace lathe
