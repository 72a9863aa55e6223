#include "libs/common/tracing/otlp_json.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libs/common/json/json.h"

namespace lathe {
namespace {

std::string Quoted(const std::string& text) { return ToJsonText(Json(text)); }

void AppendString(std::string& json, const char* key, const std::string& value) {
  absl::StrAppend(&json, "{\"key\":\"", key, "\",\"value\":{\"stringValue\":", Quoted(value), "}}");
}

void AppendAttribute(std::string& json, const SpanAttribute& attribute) {
  if (const auto* text = std::get_if<std::string>(&attribute.value)) {
    return AppendString(json, attribute.key, *text);
  }
  // The JSON of protobuf writes 64-bit integers as text.
  absl::StrAppend(&json, "{\"key\":\"", attribute.key, "\",\"value\":{\"intValue\":\"",
                  std::get<int64_t>(attribute.value), "\"}}");
}

// Appends text directly, because a tree of JSON values would take ten times as long.
void AppendSpan(std::string& json, const Span& span) {
  const SpanContext& context = span.context;
  absl::StrAppendFormat(&json, "{\"traceId\":\"%016x%016x\",\"spanId\":\"%016x\"",
                        context.trace_id_high, context.trace_id_low, context.span_id);
  if (context.parent_span_id != 0) {
    absl::StrAppendFormat(&json, ",\"parentSpanId\":\"%016x\"", context.parent_span_id);
  }
  // A clock that was set back must not make a span of negative length.
  absl::StrAppend(&json, ",\"name\":", Quoted(span.name), ",\"kind\":", static_cast<int>(span.kind),
                  ",\"startTimeUnixNano\":\"", span.began_at, "\",\"endTimeUnixNano\":\"",
                  std::max(span.began_at, span.ended_at), "\",\"attributes\":[");
  const char* separator = "";
  for (const SpanAttribute& attribute : span.attributes) {
    json += separator;
    AppendAttribute(json, attribute);
    separator = ",";
  }
  absl::StrAppend(&json, "]", span.has_failed ? ",\"status\":{\"code\":2}" : "", "}");
}

}  // namespace

std::string ToOtlpJson(const SpanResource& resource, const std::vector<Span>& spans) {
  std::string json = "{\"resourceSpans\":[{\"resource\":{\"attributes\":[";
  AppendString(json, "service.name", resource.service);
  json += ",";
  AppendString(json, "service.version", resource.version);
  json += ",";
  AppendString(json, "service.instance.id", resource.instance_id);
  absl::StrAppend(&json, "]},\"scopeSpans\":[{\"scope\":{\"name\":\"lathe\"},\"spans\":[");
  const char* separator = "";
  for (const Span& span : spans) {
    json += separator;
    AppendSpan(json, span);
    separator = ",";
  }
  json += "]}]}]}";
  return json;
}

}  // namespace lathe
