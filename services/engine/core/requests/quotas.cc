#include "services/engine/core/requests/quotas.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/engine/core/state/errors.h"
#include "services/engine/core/state/model_facts.h"

namespace lathe::engine {

namespace {

constexpr int64_t kWindowSeconds = 60;

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

std::string Text(int64_t limit) { return limit == 0 ? "none" : absl::StrFormat("%d", limit); }

}  // namespace

void OnSetQuota(State& s, const SetQuota& event) {
  const QuotaRow& row = event.row;
  s.quotas[row.tenant_id] = row;
  if (!HasRate(row)) s.rates.erase(row.tenant_id);
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
                                    {"stored_bytes", Text(row.stored_bytes)},
                                    {"tokens_per_minute", Text(row.tokens_per_minute)}}}});
  Answer answer;
  answer.call = event.call;
  answer.id = row.tenant_id;
  s.fx.After(std::move(answer));
}

std::optional<ErrorInfo> OverRate(State& s, const std::string& tenant_id, int64_t tokens) {
  const QuotaRow* const quota = FindQuota(s, tenant_id);
  if (quota == nullptr || !HasRate(*quota)) return std::nullopt;
  RateWindow& window = s.rates[tenant_id];
  const int64_t first = s.now / kSecond - kWindowSeconds + 1;
  window.by_second.erase(window.by_second.begin(), window.by_second.lower_bound(first));
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
  if (used < quota->stored_bytes) return std::nullopt;
  return PermissionDenied(
      "storage_quota",
      absl::StrFormat("stored_bytes is %d and checkpoints hold %d; delete some, or let them expire",
                      quota->stored_bytes, used));
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
