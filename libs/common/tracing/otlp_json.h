// Spans, and their encoding for OTLP/HTTP with JSON.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "libs/common/tracing/span_context.h"

namespace lathe {

// Values are ids, names from closed sets, numbers. Never prompts, tokens or keys.
struct SpanAttribute {
  const char* key;
  std::variant<std::string, int64_t> value;
};

// Numbers of opentelemetry.proto.trace.v1.Span.SpanKind.
enum class SpanKind { kInternal = 1, kServer = 2 };

// Some work with a begin and an end. Times are nanoseconds since the Unix epoch.
struct Span {
  SpanContext context;
  std::string name;
  SpanKind kind = SpanKind::kInternal;
  int64_t began_at = 0;
  int64_t ended_at = 0;
  // True if it failed for a reason of the service. A refusal of a wrong request is no failure.
  bool has_failed = false;
  std::vector<SpanAttribute> attributes = {};
};

// Describes the process that made the spans.
struct SpanResource {
  std::string service;      // service.name
  std::string version;      // service.version
  std::string instance_id;  // service.instance.id
};

// Returns an ExportTraceServiceRequest (opentelemetry-proto 1.x) in the JSON of OTLP, whose ids are
// hexadecimal. Bytes that are not UTF-8 become U+FFFD.
std::string ToOtlpJson(const SpanResource& resource, const std::vector<Span>& spans);

}  // namespace lathe
