// Text from a flag, the environment or a file into a typed variable.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace lathe {

// The variable an option fills. Lists come from a repeated flag, a YAML list, or text with commas.
using OptionTarget = std::variant<std::string*, int*, int64_t*, double*, bool*, absl::Duration*,
                                  std::vector<std::string>*>;

// InvalidArgument "'x' is not an integer" when `values` do not fit the target. All but lists take
// exactly one value; durations are "1.5s", "200ms", "2h".
absl::Status SetOption(const OptionTarget& target, const std::vector<std::string>& values);

// The present value as it would be written.
std::string OptionText(const OptionTarget& target);

}  // namespace lathe
