// Reads LATHE_SECTION__KEY variables. Private to config.
#pragma once

#include <string>
#include <vector>

namespace lathe {

struct EnvironmentEntry {
  std::string variable;
  // The key in the form section.name, in lower case.
  std::string key;
  std::string value;
};

// Returns every environment variable of that form, in the environment's order.
std::vector<EnvironmentEntry> ReadEnvironment();

}  // namespace lathe
