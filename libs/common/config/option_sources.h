// Sources of options besides the command line: a YAML file, as flat keys, and LATHE_SECTION__KEY
// variables. Private to config, and the only user of yaml-cpp.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace lathe {

struct ConfigEntry {
  // The key in the form section.name.
  std::string key;
  // One value for a scalar, any number for a list.
  std::vector<std::string> values;
  // The position in the form file:line.
  std::string where;
};

// Returns InvalidArgument with file and line unless the whole file is `section: {name: scalar or
// list}`.
absl::StatusOr<std::vector<ConfigEntry>> ReadConfigFile(const std::string& path);

struct EnvironmentEntry {
  std::string variable;
  // The key in the form section.name, in lower case.
  std::string key;
  std::string value;
};

// Returns every environment variable of that form, in the environment's order.
std::vector<EnvironmentEntry> ReadEnvironment();

}  // namespace lathe
