#include "libs/common/config/option_sources.h"

#include <unistd.h>
#include <yaml-cpp/yaml.h>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "libs/common/status_macros.h"

namespace lathe {

namespace {

std::string Where(const std::string& path, const YAML::Mark& mark) {
  return absl::StrCat(path, ":", mark.line + 1);
}

absl::Status NotThe(const std::string& path, const YAML::Node& node, const std::string& key,
                    const char* expected) {
  return absl::InvalidArgumentError(
      absl::StrCat(Where(path, node.Mark()), ": ", key, " is not ", expected));
}

absl::StatusOr<std::vector<std::string>> Scalars(const std::string& path, const std::string& key,
                                                 const YAML::Node& node) {
  std::vector<std::string> values;
  if (node.IsScalar()) {
    values.push_back(node.Scalar());
  } else if (node.IsSequence()) {
    for (const YAML::Node& item : node) {
      if (!item.IsScalar()) return NotThe(path, item, key, "a list of plain values");
      values.push_back(item.Scalar());
    }
  } else {
    return NotThe(path, node, key, "a plain value or a list");
  }
  return values;
}

absl::StatusOr<std::vector<ConfigEntry>> Flatten(const std::string& path, const YAML::Node& root) {
  std::vector<ConfigEntry> entries;
  if (root.IsNull()) return entries;
  if (!root.IsMap()) return NotThe(path, root, "the file", "a map of sections");
  for (const auto& section : root) {
    const std::string name = section.first.as<std::string>();
    if (section.second.IsNull()) continue;
    if (!section.second.IsMap()) return NotThe(path, section.first, name, "a map of keys");
    for (const auto& entry : section.second) {
      const std::string key = absl::StrCat(name, ".", entry.first.as<std::string>());
      ASSIGN_OR_RETURN(std::vector<std::string> values, Scalars(path, key, entry.second));
      entries.push_back({key, std::move(values), Where(path, entry.first.Mark())});
    }
  }
  return entries;
}

}  // namespace

absl::StatusOr<std::vector<ConfigEntry>> ReadConfigFile(const std::string& path) {
  try {
    return Flatten(path, YAML::LoadFile(path));
  } catch (const YAML::BadFile&) {
    return absl::InvalidArgumentError(absl::StrCat("cannot read ", path));
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(Where(path, error.mark), ": ", error.msg));
  }
}

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
