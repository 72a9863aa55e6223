#include "services/engine/runtime/session_traces.h"

#include <algorithm>
#include <utility>

namespace lathe::engine {

std::string_view NameOf(Outcome outcome) {
  switch (outcome) {
    case Outcome::kOk:
      return "ok";
    case Outcome::kUserError:
      return "user_error";
    case Outcome::kServerError:
      return "server_error";
    case Outcome::kCancelled:
      return "cancelled";
  }
  return "unknown";
}

// Owner ids are SESSION, SESSION:train:N and SESSION:sample:N.
std::string SessionOfOwner(const std::string& owner_id) {
  return owner_id.substr(0, owner_id.find(':'));
}

SessionTraces::SessionTraces(Options options, int64_t began_at)
    : options_(options), complete_since_(began_at) {}

void SessionTraces::OnAccepted(const RequestRow& row, const SpanContext& context) {
  absl::MutexLock lock(&mu_);
  const auto [entry, is_new] = sessions_.try_emplace(SessionOfOwner(row.owner_id));
  Session& session = entry->second;
  if (is_new) session.complete_since = complete_since_;
  const Order order = ++last_order_;
  RequestSpan& span = spans_[order];
  span.request_id = row.request_id;
  span.owner_id = row.owner_id;
  span.kind = row.kind;
  span.seq_id = row.seq_id;
  span.tokens = row.tokens;
  span.accepted_at = row.accepted_at;
  span.context = context;
  if (context.is_sampled) span.tenant_id = row.tenant_id;
  ++LoadLocked(span).num_waiting;
  orders_[row.request_id] = order;
  session.orders.insert(order);
  if (session.orders.size() > options_.max_spans_per_session) DropLocked(*session.orders.begin());
  if (spans_.size() > options_.max_spans) DropLocked(spans_.begin()->first);
}

SessionTraces::Load& SessionTraces::LoadLocked(const RequestSpan& span) {
  return loads_[span.kind];
}

void SessionTraces::DropLocked(Order order) {
  const auto found = spans_.find(order);
  const RequestSpan& span = found->second;
  // An unfinished request leaves the counts, because its end will find no span.
  if (span.completed_at == 0) LeaveLocked(span);
  const auto session = sessions_.find(SessionOfOwner(span.owner_id));
  session->second.orders.erase(order);
  session->second.complete_since = std::max(session->second.complete_since, span.accepted_at);
  if (session->second.orders.empty()) {
    complete_since_ = std::max(complete_since_, session->second.complete_since);
    sessions_.erase(session);
  }
  orders_.erase(span.request_id);
  spans_.erase(found);
}

RequestSpan* SessionTraces::FindLocked(const std::string& request_id) {
  const auto order = orders_.find(request_id);
  return order == orders_.end() ? nullptr : &spans_.at(order->second);
}

void SessionTraces::OnDurable(const std::string& request_id, int64_t now) {
  absl::MutexLock lock(&mu_);
  if (RequestSpan* const span = FindLocked(request_id)) span->durable_at = now;
}

void SessionTraces::OnDispatched(const std::string& request_id, const std::string& group,
                                 int64_t num_batch_requests, int64_t now) {
  absl::MutexLock lock(&mu_);
  RequestSpan* const span = FindLocked(request_id);
  if (span == nullptr || span->completed_at > 0) return;
  if (span->num_dispatches++ == 0) {
    Load& load = LoadLocked(*span);
    --load.num_waiting;
    ++load.num_running;
  }
  span->group = group;
  span->num_batch_requests = num_batch_requests;
  span->dispatched_at = now;
}

void SessionTraces::OnExecuted(const std::string& request_id, int64_t now) {
  absl::MutexLock lock(&mu_);
  RequestSpan* const span = FindLocked(request_id);
  if (span != nullptr && span->completed_at == 0) span->executed_at = now;
}

SessionTraces::Times SessionTraces::TimesOf(const std::string& request_id) {
  absl::MutexLock lock(&mu_);
  const RequestSpan* const span = FindLocked(request_id);
  if (span == nullptr) return {};
  return {.accepted_at = span->accepted_at,
          .dispatched_at = span->dispatched_at,
          .executed_at = span->executed_at};
}

void SessionTraces::SetOutcome(const std::string& request_id, Outcome outcome) {
  absl::MutexLock lock(&mu_);
  RequestSpan* const span = FindLocked(request_id);
  if (span != nullptr && span->completed_at == 0) span->outcome = outcome;
}

std::optional<RequestSpan> SessionTraces::OnCompleted(const std::string& request_id, int64_t now) {
  absl::MutexLock lock(&mu_);
  RequestSpan* const span = FindLocked(request_id);
  if (span == nullptr || span->completed_at > 0) return std::nullopt;
  LeaveLocked(*span);
  span->completed_at = now;
  return *span;
}

void SessionTraces::LeaveLocked(const RequestSpan& span) {
  Load& load = LoadLocked(span);
  --(span.num_dispatches > 0 ? load.num_running : load.num_waiting);
}

std::optional<RequestSpan> SessionTraces::OnDelivered(const std::string& request_id, int64_t now) {
  absl::MutexLock lock(&mu_);
  RequestSpan* const span = FindLocked(request_id);
  if (span == nullptr || span->delivered_at > 0) return std::nullopt;
  span->delivered_at = now;
  if (!span->context.is_sampled) return std::nullopt;
  return *span;
}

SessionTraces::Trace SessionTraces::Read(const std::string& session_id) {
  absl::MutexLock lock(&mu_);
  const auto session = sessions_.find(session_id);
  if (session == sessions_.end()) return {.spans = {}, .complete_since = complete_since_};
  Trace trace;
  trace.complete_since = session->second.complete_since;
  trace.spans.reserve(session->second.orders.size());
  for (const Order order : session->second.orders) trace.spans.push_back(spans_.at(order));
  return trace;
}

SessionTraces::Trace SessionTraces::ReadNewest(const std::string& owner_id, int64_t limit) {
  absl::MutexLock lock(&mu_);
  const auto session = sessions_.find(SessionOfOwner(owner_id));
  if (session == sessions_.end()) return {.spans = {}, .complete_since = complete_since_};
  Trace trace;
  trace.complete_since = session->second.complete_since;
  const std::set<Order>& orders = session->second.orders;
  size_t num_read = 0;
  for (auto order = orders.rbegin(); order != orders.rend(); ++order) {
    const RequestSpan& span = spans_.at(*order);
    if (std::ssize(trace.spans) == limit || num_read++ == options_.max_spans_per_read) {
      trace.complete_since = std::max(trace.complete_since, span.accepted_at);
      break;
    }
    if (span.owner_id == owner_id) trace.spans.push_back(span);
  }
  return trace;
}

std::map<OperationKind, SessionTraces::Load> SessionTraces::Loads() {
  absl::MutexLock lock(&mu_);
  return loads_;
}

}  // namespace lathe::engine
