// Decides which spans are recorded.
#pragma once

#include <optional>
#include <string_view>
#include <utility>

#include "libs/common/tracing/span_exporter.h"

namespace lathe {

// A process without a tracer parses no header and makes no span. Thread-safe.
class Tracer {
 public:
  // Records the share `sample_ratio` of all traces.
  Tracer(SpanExporter::Options options, double sample_ratio)
      : sample_ratio_(sample_ratio), exporter_(std::move(options)) {}

  // Returns a new span of the trace that the header `traceparent` names. The sender may turn its
  // recording off, and not raise the share. Without a valid header, returns the root of a new
  // trace.
  SpanContext Begin(std::string_view traceparent) const {
    const std::optional<SpanContext> parent = ParseTraceparent(traceparent);
    SpanContext span = parent ? ChildOf(*parent) : NewTrace();
    const bool may_record = !parent || parent->is_sampled;
    span.is_sampled = may_record && IsInSample(span, sample_ratio_);
    return span;
  }

  // Drops a span of a trace that is not sampled. Never blocks.
  void Record(Span span) {
    if (span.context.is_sampled) exporter_.Record(std::move(span));
  }

  SpanExporter::Counts counts() const { return exporter_.counts(); }

 private:
  const double sample_ratio_;
  SpanExporter exporter_;
};

}  // namespace lathe
