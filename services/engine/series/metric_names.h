// Names of metrics, their units, and patterns that select them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lathe::engine {

// Longest name of a metric.
inline constexpr size_t kMaxMetricName = 64;
// Most metrics that a run may have.
inline constexpr int64_t kMaxSeriesPerRun = 500;
// Most of them that users may name. The rest is for the numbers of results.
inline constexpr int64_t kMaxUserSeriesPerRun = 400;

// True for 1 to 64 characters of [A-Za-z0-9_./:-].
bool IsMetricName(std::string_view name);
// True for 1 to 64 characters of a name or `*`.
bool IsMetricPattern(std::string_view pattern);
// True if `pattern` describes the whole name; `*` stands for any characters. Takes at most
// the product of both lengths in steps.
bool MatchesPattern(std::string_view pattern, std::string_view name);

// Returns the unit that the last word of a server's metric names, such as "s" for
// `optim_step/queue_seconds`; empty: none.
std::string UnitOfMetric(std::string_view name);

}  // namespace lathe::engine
