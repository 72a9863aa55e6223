// A YAML file as flat keys: private to config; the only user of yaml-cpp.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace lathe {

struct ConfigEntry {
  // section.name
  std::string key;
  // One for a scalar, any number for a list.
  std::vector<std::string> values;
  // file:line
  std::string where;
};

// InvalidArgument with file and line when it is not `section: {name: scalar or list}` throughout.
absl::StatusOr<std::vector<ConfigEntry>> ReadConfigFile(const std::string& path);

}  // namespace lathe
