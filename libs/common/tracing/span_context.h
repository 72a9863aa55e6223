// The place of a span in its trace, and the W3C header `traceparent` that carries it to the next
// process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lathe {

// Name of the HTTP header and of the gRPC metadata.
inline constexpr char kTraceparent[] = "traceparent";

// A default context is no context: tracing is off.
struct SpanContext {
  uint64_t trace_id_high = 0;
  uint64_t trace_id_low = 0;
  uint64_t span_id = 0;
  uint64_t parent_span_id = 0;  // 0: the span is a root
  bool is_sampled = false;

  bool is_valid() const { return span_id != 0; }
};

// Parses the header. Its span becomes the result's span. Returns nullopt for a text that
// https://www.w3.org/TR/trace-context/ calls invalid, and for one of more than 512 bytes.
std::optional<SpanContext> ParseTraceparent(std::string_view text);

// Writes the header, of version 00, for the children of `context`, which must be valid.
std::string FormatTraceparent(const SpanContext& context);

// Returns a child of `parent` with a random span id. Thread-safe.
SpanContext ChildOf(const SpanContext& parent);

// Returns the first span of a new trace, sampled or not. Thread-safe.
SpanContext NewTrace();

// Decides alike for all spans of a trace in this process. `ratio` lies in [0, 1]. Thread-safe.
bool IsInSample(const SpanContext& context, double ratio);

}  // namespace lathe
