#include "services/engine/runtime/request_spans.h"

#include <utility>
#include <vector>

namespace lathe::engine {
namespace {

// Records a stage that took place: neither of its times is 0.
void RecordStage(Tracer& tracer, const RequestSpan& request, const char* name, int64_t began_at,
                 int64_t ended_at, std::vector<SpanAttribute> attributes = {}) {
  if (began_at == 0 || ended_at == 0) return;
  tracer.Record({.context = ChildOf(request.context),
                 .name = name,
                 .began_at = began_at,
                 .ended_at = ended_at,
                 .attributes = std::move(attributes)});
}

// Owner ids are SESSION, SESSION:train:N and SESSION:sample:N.
const char* OwnerAttribute(const std::string& owner_id) {
  if (owner_id.find(":train:") != std::string::npos) return "lathe.model_id";
  if (owner_id.find(":sample:") != std::string::npos) return "lathe.sampling_session_id";
  return "lathe.session_id";
}

}  // namespace

void RecordRequest(Tracer& tracer, const RequestSpan& request, const std::string& base_model) {
  if (!request.context.is_sampled) return;
  RecordStage(tracer, request, "accept", request.accepted_at, request.durable_at);
  RecordStage(tracer, request, "queue", request.durable_at, request.dispatched_at);
  RecordStage(tracer, request, "execute", request.dispatched_at, request.executed_at,
              {{"lathe.group", request.group},
               {"lathe.dispatches", request.num_dispatches},
               {"lathe.batch_requests", request.num_batch_requests}});
  RecordStage(tracer, request, "commit", request.executed_at, request.completed_at);
  const std::string operation(TraitsOf(request.kind).name);
  Span span = {.context = request.context,
               .name = operation,
               .kind = SpanKind::kServer,
               .began_at = request.accepted_at,
               .ended_at = request.completed_at,
               .has_failed = request.outcome == Outcome::kServerError,
               .attributes = {{"lathe.tenant_id", request.tenant_id},
                              {OwnerAttribute(request.owner_id), request.owner_id},
                              {"lathe.request_id", request.request_id},
                              {"lathe.operation", operation},
                              {"lathe.seq_id", request.seq_id},
                              {"lathe.outcome", std::string(NameOf(request.outcome))}}};
  if (!base_model.empty()) span.attributes.push_back({"lathe.base_model", base_model});
  if (!request.group.empty()) span.attributes.push_back({"lathe.group", request.group});
  tracer.Record(std::move(span));
}

void RecordDelivery(Tracer& tracer, const RequestSpan& request) {
  if (!request.context.is_sampled) return;
  RecordStage(tracer, request, "deliver", request.completed_at, request.delivered_at);
}

}  // namespace lathe::engine
