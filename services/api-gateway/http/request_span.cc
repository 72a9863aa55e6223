#include "services/api-gateway/http/request_span.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace lathe::gateway {
namespace {

// Method of the routes of gRPC.
constexpr char kGrpc[] = "GRPC";

}  // namespace

void BeginSpan(Tracer* tracer, const Route& route, KeyState key_state, Request& request) {
  if (tracer == nullptr || route.access == Access::kPublic) return;
  if (key_state != KeyState::kAccepted) return;
  request.span = tracer->Begin(request.HeaderValue(kTraceparent));
}

void EndSpan(Tracer* tracer, const Request& request, const Answered& answered,
             const std::string& request_id) {
  if (tracer == nullptr || !request.span.is_sampled) return;
  const Route& route = *answered.route;
  Span span;
  span.context = request.span;
  span.kind = SpanKind::kServer;
  span.ended_at = absl::ToUnixNanos(absl::Now());
  span.began_at = span.ended_at - absl::ToInt64Nanoseconds(answered.took);
  span.has_failed = answered.status >= 500;
  if (route.method == kGrpc) {
    span.name = route.pattern.substr(1);
    span.attributes = {{"rpc.system", "grpc"}, {"rpc.method", span.name}};
  } else {
    span.name = absl::StrCat(route.method, " ", route.pattern);
    span.attributes = {{"http.request.method", request.method}, {"http.route", route.pattern}};
  }
  span.attributes.push_back({"http.response.status_code", int64_t{answered.status}});
  if (!answered.refusal.empty()) span.attributes.push_back({"error.type", answered.refusal});
  if (!request_id.empty()) span.attributes.push_back({"lathe.request_id", request_id});
  tracer->Record(std::move(span));
}

}  // namespace lathe::gateway
