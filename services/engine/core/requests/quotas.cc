#include "services/engine/core/requests/quotas.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/engine/core/requests/tenant_usage.h"
#include "services/engine/core/state/errors.h"
#include "services/engine/core/state/model_facts.h"

namespace lathe::engine {

namespace {

constexpr int64_t kWindowSeconds = 60;

// Returns the tenant's limits, with defaults.
QuotaRow QuotaOf(const State& s, const std::string& tenant_id) {
  const QuotaRow* const found = Find(s.quotas, tenant_id);
  return WithDefaults(found == nullptr ? QuotaRow() : *found, s.options);
}

const QuotaRow* FindQuota(const State& s, const std::string& tenant_id) {
  return Find(s.quotas, tenant_id);
}

bool HasRate(const QuotaRow& quota) {
  return quota.requests_per_minute > 0 || quota.tokens_per_minute > 0;
}

ErrorInfo PermissionDenied(std::string code, std::string message) {
  return {absl::StatusCode::kPermissionDenied, std::move(code), "", std::move(message)};
}

// Seconds until entries of at least `excess` units have left the window.
template <typename UsedOf>
int64_t SecondsUntil(const RateWindow& window, int64_t now_second, int64_t excess, UsedOf used_of) {
  for (const auto& [second, use] : window.by_second) {
    excess -= used_of(use);
    if (excess <= 0) return second + kWindowSeconds - now_second;
  }
  return kWindowSeconds;
}

// `limit`: 0 means no limit.
template <typename UsedOf>
std::optional<ErrorInfo> Over(const State& s, const RateWindow& window, const char* name,
                              int64_t limit, int64_t more, UsedOf used_of) {
  if (limit == 0) return std::nullopt;
  int64_t used = 0;
  for (const auto& [second, use] : window.by_second) used += used_of(use);
  if (used == 0 || used + more <= limit) return std::nullopt;
  const int64_t wait = SecondsUntil(window, s.now / kSecond, used + more - limit, used_of);
  ErrorInfo error = ResourceExhausted(
      "rate_limit", absl::StrFormat("%s is %d, used in the last minute are %d and this request has "
                                    "%d; come back in %d s",
                                    name, limit, used, more, wait));
  error.retry_after_seconds = wait;
  return error;
}

std::string Text(int64_t limit) {
  if (limit == kDefaultLimit) return "default";
  return limit == 0 ? "none" : absl::StrFormat("%d", limit);
}

ErrorInfo TooMany(const char* limit, int64_t value) {
  return ResourceExhausted(limit,
                           absl::StrFormat("%s is %d and reached; retry later", limit, value));
}

void DropOldSeconds(const State& s, RateWindow& window) {
  const int64_t first = s.now / kSecond - kWindowSeconds + 1;
  window.by_second.erase(window.by_second.begin(), window.by_second.lower_bound(first));
}

// Returns the time at which at least `excess` units have left the window.
template <typename UsedOf>
int64_t TimeUntil(const State& s, const RateWindow& window, int64_t excess, UsedOf used_of) {
  const int64_t now_second = s.now / kSecond;
  return (now_second + SecondsUntil(window, now_second, excess, used_of)) * kSecond;
}

void SetRateRoom(State& s, const std::string& tenant_id, const QuotaRow& quota, TenantRoom& room) {
  RateWindow* const window = Find(s.rates, tenant_id);
  if (window == nullptr) return;
  DropOldSeconds(s, *window);
  const auto requests_of = [](const RateWindow::Use& use) { return use.requests; };
  const auto tokens_of = [](const RateWindow::Use& use) { return use.tokens; };
  int64_t requests = 0, tokens = 0;
  for (const auto& [second, use] : window->by_second) {
    requests += use.requests;
    tokens += use.tokens;
  }
  if (quota.requests_per_minute > 0 && requests >= quota.requests_per_minute) {
    const int64_t excess = requests + 1 - quota.requests_per_minute;
    room.requests_from = TimeUntil(s, *window, excess, requests_of);
  }
  if (quota.tokens_per_minute > 0 && tokens > 0) {
    room.tokens = quota.tokens_per_minute - tokens;
    room.tokens_until = TimeUntil(s, *window, /*excess=*/1, tokens_of);
  }
}

// Agrees with OverRate, OverQueue and the tenant's part of OverBound.
TenantRoom RoomOf(State& s, const std::string& tenant_id) {
  const TenantUsage usage = UsageOf(s, tenant_id);
  TenantRoom room;
  room.rows = s.options.max_rows_per_tenant - usage.num_rows;
  if (usage.num_rows > 0) room.bytes = s.options.max_queued_bytes_per_tenant - usage.bytes;
  const QuotaRow* const quota = FindQuota(s, tenant_id);
  if (quota == nullptr) return room;
  if (quota->queued_bytes > 0 && usage.bytes > 0) {
    room.bytes = std::min(room.bytes, quota->queued_bytes - usage.bytes);
  }
  SetRateRoom(s, tenant_id, *quota, room);
  return room;
}

}  // namespace

void OnSetQuota(State& s, const SetQuota& event) {
  const QuotaRow& row = event.row;
  s.quotas[row.tenant_id] = row;
  if (!HasRate(row)) s.rates.erase(row.tenant_id);
  s.follow_ups.tenants.insert(row.tenant_id);
  s.follow_ups.unfetched.insert(row.tenant_id);
  s.fx.Put(PutQuota{row});
  s.fx.Put(AppendAudit{{.at = s.now,
                        .tenant_id = row.tenant_id,
                        .resource = "organizations",
                        .event = "tenant_set_quota",
                        .actor = event.actor,
                        .object = event.tenant_name,
                        .outcome = "ok",
                        .details = {{"adapters", Text(row.adapters)},
                                    {"queued_bytes", Text(row.queued_bytes)},
                                    {"requests_per_minute", Text(row.requests_per_minute)},
                                    {"samplers", Text(row.samplers)},
                                    {"sessions", Text(row.sessions)},
                                    {"stored_bytes", Text(row.stored_bytes)},
                                    {"tokens_per_minute", Text(row.tokens_per_minute)},
                                    {"unfetched_bytes", Text(row.unfetched_bytes)},
                                    {"unfetched_results", Text(row.unfetched_results)}}}});
  Answer answer;
  answer.call = event.call;
  answer.id = row.tenant_id;
  s.fx.After(std::move(answer));
}

std::optional<ErrorInfo> OverRate(State& s, const std::string& tenant_id, int64_t tokens) {
  const QuotaRow* const quota = FindQuota(s, tenant_id);
  if (quota == nullptr || !HasRate(*quota)) return std::nullopt;
  RateWindow& window = s.rates[tenant_id];
  DropOldSeconds(s, window);
  s.follow_ups.tenants.insert(tenant_id);  // a refusal publishes the room of this second
  if (auto error = Over(s, window, "requests_per_minute", quota->requests_per_minute, 1,
                        [](const RateWindow::Use& use) { return use.requests; })) {
    return error;
  }
  if (tokens == 0) return std::nullopt;
  return Over(s, window, "tokens_per_minute", quota->tokens_per_minute, tokens,
              [](const RateWindow::Use& use) { return use.tokens; });
}

void ChargeRate(State& s, const std::string& tenant_id, int64_t accepted_at, int64_t tokens) {
  const QuotaRow* const quota = FindQuota(s, tenant_id);
  if (quota == nullptr || !HasRate(*quota)) return;
  if (accepted_at / kSecond <= s.now / kSecond - kWindowSeconds) return;
  RateWindow::Use& use = s.rates[tenant_id].by_second[accepted_at / kSecond];
  ++use.requests;
  use.tokens += tokens;
  s.follow_ups.tenants.insert(tenant_id);
}

std::optional<ErrorInfo> OverBound(const State& s, const std::string& tenant_id, const Model* model,
                                   int64_t bytes) {
  const CoreOptions& o = s.options;
  if (model != nullptr && model->num_live_requests >= o.max_rows_per_model) {
    return TooMany("max_rows_per_model", o.max_rows_per_model);
  }
  const TenantUsage usage = UsageOf(s, tenant_id);
  if (usage.num_rows >= o.max_rows_per_tenant) {
    return TooMany("max_rows_per_tenant", o.max_rows_per_tenant);
  }
  if (usage.num_rows > 0 && usage.bytes + bytes > o.max_queued_bytes_per_tenant) {
    return TooMany("max_queued_bytes_per_tenant", o.max_queued_bytes_per_tenant);
  }
  const int64_t num_tenants = s.num_queueing_tenants + (usage.num_rows == 0 ? 1 : 0);
  if (s.total_usage.num_rows >= o.max_rows_total &&
      usage.num_rows >= o.max_rows_total / num_tenants) {
    return TooMany("max_rows_total", o.max_rows_total);
  }
  if (s.total_usage.bytes + bytes > o.max_queued_bytes_total &&
      usage.bytes + bytes > o.max_queued_bytes_total / num_tenants) {
    return TooMany("max_queued_bytes_total", o.max_queued_bytes_total);
  }
  return std::nullopt;
}

ErrorInfo BodyWithheld(const Submit& submit) {
  return ResourceExhausted(
      "queue_quota",
      absl::StrFormat("the tenant's limits of requests, tokens and queued bytes had no room for "
                      "this request of %d bytes and %d tokens a moment ago; retry",
                      submit.payload.bytes, submit.payload.tokens));
}

std::optional<ErrorInfo> OverQueue(const State& s, const std::string& tenant_id, int64_t bytes) {
  const QuotaRow* const quota = FindQuota(s, tenant_id);
  const TenantUsage* const usage = Find(s.usage, tenant_id);
  if (quota == nullptr || quota->queued_bytes == 0 || usage == nullptr || bytes == 0) {
    return std::nullopt;
  }
  if (usage->bytes == 0 || usage->bytes + bytes <= quota->queued_bytes) return std::nullopt;
  return ResourceExhausted(
      "queue_quota",
      absl::StrFormat("queued_bytes is %d, %d are queued and this request has %d; retry later",
                      quota->queued_bytes, usage->bytes, bytes));
}

std::optional<ErrorInfo> OverStorage(const State& s, const std::string& tenant_id) {
  const QuotaRow* const quota = FindQuota(s, tenant_id);
  if (quota == nullptr || quota->stored_bytes == 0) return std::nullopt;
  int64_t used = 0;
  for (auto it = s.stored.lower_bound({tenant_id, ""});
       it != s.stored.end() && it->first.first == tenant_id; ++it) {
    used += it->second.bytes;
  }
  const int64_t reserved = UsageOf(s, tenant_id).reserved_bytes;
  if (used + reserved < quota->stored_bytes) return std::nullopt;
  const std::string queued =
      reserved == 0 ? "" : absl::StrFormat(" and unfinished saves will need about %d", reserved);
  return PermissionDenied("storage_quota",
                          absl::StrFormat("stored_bytes is %d and checkpoints hold %d%s; delete "
                                          "some, or let them expire",
                                          quota->stored_bytes, used, queued));
}

std::optional<ErrorInfo> OverSessions(const State& s, const std::string& tenant_id) {
  const int64_t limit = QuotaOf(s, tenant_id).sessions;
  const int64_t used = UsageOf(s, tenant_id).sessions;
  if (limit == 0 || used < limit) return std::nullopt;
  return PermissionDenied(
      "session_quota",
      absl::StrFormat("sessions is %d and %d are live; finish one, or let silent ones expire",
                      limit, used));
}

std::optional<ErrorInfo> OverSamplers(const State& s, const std::string& tenant_id) {
  const int64_t limit = QuotaOf(s, tenant_id).samplers;
  const TenantUsage usage = UsageOf(s, tenant_id);
  const int64_t used = usage.samplers + usage.reserved_samplers;
  if (limit == 0 || used < limit) return std::nullopt;
  return PermissionDenied(
      "sampler_quota",
      absl::StrFormat("samplers is %d and %d are live or being saved; finish a session", limit,
                      used));
}

bool IsOverUnfetched(const State& s, const std::string& tenant_id) {
  const TenantUsage usage = UsageOf(s, tenant_id);
  if (usage.unfetched_results <= 1) return false;
  const QuotaRow quota = QuotaOf(s, tenant_id);
  const auto is_over = [](int64_t used, int64_t limit) { return limit > 0 && used > limit; };
  return is_over(usage.unfetched_results, quota.unfetched_results) ||
         is_over(usage.unfetched_bytes, quota.unfetched_bytes);
}

QuotaRow WithDefaults(QuotaRow row, const CoreOptions& options) {
  const auto fill = [](int64_t& limit, int64_t default_limit) {
    if (limit == kDefaultLimit) limit = default_limit;
  };
  fill(row.sessions, options.max_sessions_per_tenant);
  fill(row.samplers, options.max_samplers_per_tenant);
  fill(row.unfetched_results, options.max_unfetched_results_per_tenant);
  fill(row.unfetched_bytes, options.max_unfetched_bytes_per_tenant);
  return row;
}

void NotifyTenants(State& s) {
  for (const std::string& id : s.follow_ups.tenants) {
    s.fx.Now(NotifyTenant{id, UsageOf(s, id), RoomOf(s, id)});
  }
  s.follow_ups.tenants.clear();
}

std::optional<ErrorInfo> OverAdapters(State& s, const std::string& tenant_id) {
  const QuotaRow* const quota = FindQuota(s, tenant_id);
  if (quota == nullptr || quota->adapters == 0) return std::nullopt;
  const int64_t* const found = Find(IndexOf(s).num_adapters, tenant_id);
  const int64_t used = found == nullptr ? 0 : *found;
  if (used < quota->adapters) return std::nullopt;
  return PermissionDenied("adapter_quota",
                          absl::StrFormat("adapters is %d and %d models are live; close a session",
                                          quota->adapters, used));
}

namespace {

constexpr int64_t kHour = 3600 * kSecond;

int64_t HourOf(int64_t time) { return time - time % kHour; }

UsageRow RowFor(const State& s, const std::string& tenant_id, const std::string& session_id,
                const std::string& base_model) {
  UsageRow row;
  row.tenant_id = tenant_id;
  row.hour = HourOf(s.now);
  row.session_id = session_id;
  row.base_model = base_model;
  return row;
}

void CountSample(const Request& request, const WorkerDone& done, UsageRow& row) {
  const int64_t prompt_tokens = std::get<SampleArgs>(request.plan->args).prompt_tokens;
  row.cached_prefill_tokens =
      std::clamp<int64_t>(done.cached_prompt_tokens, 0, std::max<int64_t>(0, prompt_tokens));
  row.prefill_tokens = prompt_tokens - row.cached_prefill_tokens;
  row.sampled_tokens = done.sampled_tokens;
}

// Fills the usage of a request. Returns false if operations of this kind are free.
bool Count(const Request& request, const WorkerDone& done, UsageRow& row) {
  switch (request.row.kind) {
    case OperationKind::kForward:
      row.forward_tokens = request.row.tokens;
      return true;
    case OperationKind::kForwardBackward:
      row.forward_backward_tokens = request.row.tokens;
      return true;
    case OperationKind::kSample:
      CountSample(request, done, row);
      return true;
    case OperationKind::kSaveWeights:
    case OperationKind::kSaveWeightsForSampler:
    case OperationKind::kSaveWeightsExternal:
      // An unnamed version does not count as a checkpoint.
      row.num_checkpoints = request.plan->version_id.empty() ? 1 : 0;
      return row.num_checkpoints > 0;
    default:
      return false;
  }
}

}  // namespace

void CountUsage(State& s, const Request& request, const WorkerDone& done) {
  UsageRow row = RowFor(s, request.row.tenant_id, request.session_id, BaseModelOf(s, request));
  if (Count(request, done, row)) s.fx.Put(AddUsage{std::move(row)});
}

void CountCheckpoint(State& s, const std::string& tenant_id, const std::string& session_id,
                     const std::string& base_model) {
  UsageRow row = RowFor(s, tenant_id, session_id, base_model);
  row.num_checkpoints = 1;
  s.fx.Put(AddUsage{std::move(row)});
}

void CountStorage(State& s) {
  if (HourOf(s.now) == s.storage_hour) return;
  s.storage_hour = HourOf(s.now);
  for (const auto& [owner, stored] : s.stored) {
    UsageRow row = RowFor(s, owner.first, "", owner.second);
    row.stored_bytes = stored.bytes;
    s.fx.PutLater(AddUsage{std::move(row)});
  }
}

}  // namespace lathe::engine
