#include "libs/common/tracing/tracer.h"

#include <optional>

namespace lathe {

SpanContext Tracer::Begin(std::string_view traceparent) const {
  const std::optional<SpanContext> parent = ParseTraceparent(traceparent);
  SpanContext span = parent ? ChildOf(*parent) : NewTrace();
  const bool may_record = !parent || parent->is_sampled;
  span.is_sampled = may_record && IsInSample(span, sample_ratio_);
  return span;
}

}  // namespace lathe
