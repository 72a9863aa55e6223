#include "services/engine/series/metric_names.h"

#include <algorithm>

namespace lathe::engine {
namespace {

bool IsNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.' || c == '/' || c == ':' || c == '-';
}

}  // namespace

bool IsMetricName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxMetricName &&
         std::all_of(name.begin(), name.end(), IsNameCharacter);
}

bool IsMetricPattern(std::string_view pattern) {
  return !pattern.empty() && pattern.size() <= kMaxMetricName &&
         std::all_of(pattern.begin(), pattern.end(),
                     [](char c) { return c == '*' || IsNameCharacter(c); });
}

bool MatchesPattern(std::string_view pattern, std::string_view name) {
  size_t at = 0;                         // in the pattern
  size_t star = std::string_view::npos;  // place of the last `*`
  size_t resume = 0;                     // character of the name to which that `*` extends
  for (size_t i = 0; i < name.size();) {
    if (at < pattern.size() && pattern[at] == '*') {
      star = at++;
      resume = i;
    } else if (at < pattern.size() && pattern[at] == name[i]) {
      ++at;
      ++i;
    } else if (star != std::string_view::npos) {
      at = star + 1;
      i = ++resume;
    } else {
      return false;
    }
  }
  while (at < pattern.size() && pattern[at] == '*') ++at;
  return at == pattern.size();
}

std::string UnitOfMetric(std::string_view name) {
  if (name.ends_with("seconds")) return "s";
  if (name.ends_with("tokens")) return "tokens";
  return "";
}

}  // namespace lathe::engine
