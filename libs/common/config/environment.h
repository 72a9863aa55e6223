// LATHE_SECTION__KEY variables: private to config.
#pragma once

#include <string>
#include <vector>

namespace lathe {

struct EnvironmentEntry {
  std::string variable;
  // section.name, lower case.
  std::string key;
  std::string value;
};

// Every variable of the process of that form, in the environment's order.
std::vector<EnvironmentEntry> ReadEnvironment();

}  // namespace lathe
