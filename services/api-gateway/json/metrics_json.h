// Metrics of runs: bodies with points, and answers with curves.
#pragma once

#include <string>

#include "protos/lathe/v1/metrics.pb.h"
#include "services/api-gateway/json/fields.h"
#include "services/api-gateway/json/parse_json.h"

namespace lathe::gateway {

inline constexpr Field kMetricPointFields[] = {
    {.name = "name",
     .is_required = true,
     .schema = R"("minLength": 1, "maxLength": 64, "pattern": "^[A-Za-z0-9_./:-]+$")"},
    {.name = "value", .is_required = true, .about = "Finite"},
    {.name = "step",
     .is_required = true,
     .about = "Steps of a metric never go back; the newest one may be replaced",
     .schema = R"("minimum": 0)"},
    {.name = "time", .about = "By default the time of the call"}};
inline constexpr ObjectFields kMetricPoint = {"MetricPoint", kMetricPointFields};

inline constexpr Field kAppendMetricsFields[] = {{.name = "points",
                                                  .is_required = true,
                                                  .min_count = 1,
                                                  .max_count = 1000,
                                                  .object = &kMetricPoint}};
inline constexpr BodyFields<v1::AppendMetricsRequest> kAppendMetrics = {
    {"AppendMetricsRequest", kAppendMetricsFields}};

Json AppendedToJson(const v1::AppendMetricsResponse& response);

// Writes the text directly: an answer may have hundreds of thousands of numbers. With
// `has_buckets`, each series has its lists, also empty ones.
std::string MetricsToJson(const v1::QueryMetricsResponse& response, bool has_buckets);
// The same without a run, always with buckets.
std::string MachineMetricsToJson(const v1::QueryMetricsResponse& response);

}  // namespace lathe::gateway
