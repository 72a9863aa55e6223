#include "libs/common/config/environment.h"

#include <unistd.h>

#include <string_view>

#include "absl/strings/ascii.h"

namespace lathe {

std::vector<EnvironmentEntry> ReadEnvironment() {
  constexpr std::string_view kPrefix = "LATHE_";
  std::vector<EnvironmentEntry> entries;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = text.find('=');
    if (!text.starts_with(kPrefix) || equals == std::string_view::npos) continue;
    const std::string variable(text.substr(0, equals));
    const std::size_t middle = variable.find("__", kPrefix.size());
    if (middle == std::string::npos) continue;
    entries.push_back(
        {variable,
         absl::AsciiStrToLower(variable.substr(kPrefix.size(), middle - kPrefix.size()) + "." +
                               variable.substr(middle + 2)),
         std::string(text.substr(equals + 1))});
  }
  return entries;
}

}  // namespace lathe
