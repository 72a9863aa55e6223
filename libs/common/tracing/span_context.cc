#include "libs/common/tracing/span_context.h"

#include <cmath>
#include <cstring>
#include <string>

#include "absl/random/random.h"
#include "absl/strings/str_format.h"
#include "libs/common/digest/sha256.h"
#include "libs/common/random/random_id.h"

namespace lathe {
namespace {

constexpr size_t kHeaderBytes = 55;  // of version 00
constexpr size_t kMaxHeaderBytes = 512;

// Returns nullopt unless all of `text` are hexadecimal digits in lower case.
std::optional<uint64_t> ParseHex(std::string_view text) {
  uint64_t value = 0;
  for (const char c : text) {
    const bool is_digit = c >= '0' && c <= '9';
    if (!is_digit && (c < 'a' || c > 'f')) return std::nullopt;
    value = value << 4 | static_cast<uint64_t>(is_digit ? c - '0' : c - 'a' + 10);
  }
  return value;
}

// Ids need not be secret, and a system call for each would cost more than the rest of a span.
uint64_t RandomNonZero() {
  thread_local absl::BitGen generator;
  return absl::Uniform<uint64_t>(absl::IntervalClosed, generator, 1, UINT64_MAX);
}

// Returns a number that a client, which picks the trace id, can neither know nor choose.
uint64_t LotOf(const SpanContext& context) {
  static const std::string key = RandomBytes(32);
  const uint64_t id[] = {context.trace_id_high, context.trace_id_low};
  const std::string digest =
      HmacSha256(key, std::string_view(reinterpret_cast<const char*>(id), sizeof(id)));
  uint64_t lot = 0;
  std::memcpy(&lot, digest.data(), sizeof(lot));
  return lot;
}

}  // namespace

std::optional<SpanContext> ParseTraceparent(std::string_view text) {
  if (text.size() < kHeaderBytes || text.size() > kMaxHeaderBytes) return std::nullopt;
  if (text[2] != '-' || text[35] != '-' || text[52] != '-') return std::nullopt;
  const auto version = ParseHex(text.substr(0, 2));
  const auto high = ParseHex(text.substr(3, 16));
  const auto low = ParseHex(text.substr(19, 16));
  const auto span = ParseHex(text.substr(36, 16));
  const auto flags = ParseHex(text.substr(53, 2));
  if (!version || !high || !low || !span || !flags) return std::nullopt;
  // Later versions may append fields.
  const bool is_whole = text.size() == kHeaderBytes || (*version > 0 && text[kHeaderBytes] == '-');
  if (*version == 0xff || !is_whole || (*high | *low) == 0 || *span == 0) return std::nullopt;
  return SpanContext{.trace_id_high = *high,
                     .trace_id_low = *low,
                     .span_id = *span,
                     .parent_span_id = 0,
                     .is_sampled = (*flags & 1) != 0};
}

std::string FormatTraceparent(const SpanContext& context) {
  return absl::StrFormat("00-%016x%016x-%016x-%02x", context.trace_id_high, context.trace_id_low,
                         context.span_id, context.is_sampled ? 1 : 0);
}

SpanContext ChildOf(const SpanContext& parent) {
  SpanContext child = parent;
  child.parent_span_id = parent.span_id;
  child.span_id = RandomNonZero();
  return child;
}

SpanContext NewTrace() {
  return {.trace_id_high = RandomNonZero(),
          .trace_id_low = RandomNonZero(),
          .span_id = RandomNonZero(),
          .parent_span_id = 0,
          .is_sampled = false};
}

bool IsInSample(const SpanContext& context, double ratio) {
  if (ratio >= 1) return true;
  if (ratio <= 0) return false;
  return static_cast<double>(LotOf(context)) < std::ldexp(ratio, 64);
}

}  // namespace lathe
