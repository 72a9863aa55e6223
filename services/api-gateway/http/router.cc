#include "services/api-gateway/http/router.h"

#include <algorithm>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "libs/common/errors.h"
#include "libs/common/strings/string_view.h"

namespace lathe::gateway {
namespace {

bool IsParameter(const std::string& segment) { return absl::StartsWith(segment, "{"); }

// Returns the values of the pattern's parameters, or nullopt if `segments` do not match.
std::optional<std::vector<std::string>> MatchPattern(const std::vector<std::string>& pattern,
                                                     const std::vector<std::string>& segments) {
  if (pattern.size() != segments.size()) return std::nullopt;
  std::vector<std::string> parameters;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (IsParameter(pattern[i])) {
      if (segments[i].empty()) return std::nullopt;
      parameters.push_back(segments[i]);
    } else if (pattern[i] != segments[i]) {
      return std::nullopt;
    }
  }
  return parameters;
}

// Returns the Levenshtein distance.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row.back();
}

// Returns the pattern nearest to `path`, or "" if none is within kMaxDistance edits.
std::string NearestPattern(std::string_view path, const std::vector<Route>& routes) {
  constexpr size_t kMaxComparedBytes = 200;
  constexpr size_t kMaxDistance = 6;
  std::string nearest;
  size_t best = kMaxDistance + 1;
  for (const Route& route : routes) {
    const size_t distance = EditDistance(path.substr(0, kMaxComparedBytes), route.pattern);
    if (distance < best) {
      best = distance;
      nearest = route.pattern;
    }
  }
  return nearest;
}

absl::Status UnknownRoute(std::string_view method, std::string_view path,
                          const std::vector<Route>& routes) {
  std::string message = absl::StrFormat("no route %s %s in this version of Lathe", AbslView(method),
                                        AbslView(path.substr(0, 200)));
  const std::string nearest = NearestPattern(path, routes);
  if (!nearest.empty()) absl::StrAppendFormat(&message, "; did you mean %s?", nearest);
  return WithDetail(absl::NotFoundError(message), "unknown_route");
}

}  // namespace

Router::Router(std::vector<Route> routes) : routes_(std::move(routes)) {
  for (const Route& route : routes_) {
    patterns_.push_back(absl::StrSplit(AbslView(route.pattern).substr(1), '/'));
  }
}

absl::StatusOr<Router::Match> Router::Find(std::string_view method, std::string_view path,
                                           const std::vector<std::string>& segments) const {
  std::vector<std::string> allowed;
  for (size_t i = 0; i < routes_.size(); ++i) {
    auto parameters = MatchPattern(patterns_[i], segments);
    if (!parameters) continue;
    // HEAD is a GET whose body is not sent.
    if (routes_[i].method == (method == "HEAD" ? "GET" : method)) {
      return Match{&routes_[i], *std::move(parameters)};
    }
    allowed.push_back(routes_[i].method);
  }
  if (allowed.empty()) return UnknownRoute(method, path, routes_);
  const std::string allow = absl::StrJoin(allowed, ", ");
  return WithDetail(absl::InvalidArgumentError(absl::StrFormat(
                        "%s is not allowed on this path, use %s", AbslView(method), allow)),
                    "method_not_allowed", allow);
}

}  // namespace lathe::gateway
