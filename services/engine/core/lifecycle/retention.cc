#include "services/engine/core/lifecycle/retention.h"

#include <set>
#include <string>

#include "services/engine/core/models/models.h"
#include "services/engine/core/requests/quotas.h"
#include "services/engine/core/requests/requests.h"

namespace lathe::engine {
namespace {

constexpr int64_t kInterval = 60 * kSecond;
// Rows without a result answer "expired" for this long.
constexpr int64_t kRowsKept = 7 * 24 * 3600 * kSecond;
// A year, with time to settle its bills.
constexpr int64_t kUsageKept = int64_t{400} * 24 * 3600 * kSecond;

// Above this number the ledger forgets requests whose results were delivered or removed. A client
// with a result has the request id too, so it repeats only calls that are still in flight. The
// store keeps these requests and answers other duplicates.
constexpr size_t kMaxRemembered = 65536;
constexpr int64_t kOnItsWay = 60 * kSecond;

// Notes models whose rows must be written before the ledger forgets `row`. Its information about
// the model must survive a restart.
void KeepInModelRow(State& s, const RequestRow& row, std::set<std::string>& changed) {
  Model* const model = row.op_class == OpClass::kTrain ? Find(s.models, row.owner_id) : nullptr;
  if (model == nullptr) return;
  if (model->order.closed_seq() < row.seq_id) changed.insert(row.owner_id);
  if (model->gradient.Contains(row.seq_id)) changed.insert(row.owner_id);
}

void WriteKept(State& s, const std::string& model_id) {
  Model& model = s.models.at(model_id);
  model.order.Close(model.order.ResolvedThrough());
  model.row.kept_window = EncodeSeqs(model.gradient.seqs());
  PutRow(s, model);
}

// The request to forget next; nullptr: none is due.
const std::string* NextForgotten(const State& s) {
  if (s.retention.empty()) return nullptr;
  const auto& [forgotten_at, oldest] = *s.retention.begin();
  if (forgotten_at <= s.now) return &oldest;
  if (s.retention.size() <= kMaxRemembered || s.forgettable.empty()) return nullptr;
  const auto& [forgettable_from, first] = *s.forgettable.begin();
  return forgettable_from + kOnItsWay <= s.now ? &first : nullptr;
}

// Forgets the requests that are due, as many as one Step may. The next Continue goes on with those
// that are left.
void ForgetRequests(State& s) {
  std::set<std::string> changed;
  Budget budget(s.options.max_swept);
  const std::string* next = nullptr;
  while ((next = NextForgotten(s)) != nullptr && budget.Take()) {
    const Request& request = s.requests.at(*next);
    KeepInModelRow(s, request.row, changed);
    Forget(s, request);
  }
  for (const std::string& model_id : changed) WriteKept(s, model_id);
  s.is_forgetting = next != nullptr;
  if (s.is_forgetting) AskToContinue(s);
}

// The oldest unfetched result of the tenant that has most; nullptr: there is room for all.
const std::string* NextAboveTotal(const State& s) {
  const int64_t limit = s.options.max_unfetched_results_total;
  if (limit == 0 || s.num_unfetched <= limit) return nullptr;
  const auto& [count, tenant_id] = *s.tenants_by_unfetched.rbegin();
  return count > 1 ? &s.unfetched.at(tenant_id).begin()->second : nullptr;
}

// The unfetched result to remove next; nullptr: no limit is exceeded any more.
const std::string* NextRemoved(State& s) {
  std::set<std::string>& tenants = s.follow_ups.unfetched;
  while (!tenants.empty()) {
    const std::string& tenant_id = *tenants.begin();
    if (IsOverUnfetched(s, tenant_id)) return &s.unfetched.at(tenant_id).begin()->second;
    tenants.erase(tenants.begin());
  }
  return NextAboveTotal(s);
}

}  // namespace

void RemoveUnfetchedResults(State& s) {
  Budget budget(s.options.max_swept);
  const std::string* next = nullptr;
  while ((next = NextRemoved(s)) != nullptr && budget.Take()) {
    RemoveResult(s, s.requests.at(*next));
  }
}

void PurgeOldResults(State& s) {
  if (s.now - s.purged_at < kInterval) return;
  s.purged_at = s.now;
  ForgetRequests(s);
  s.fx.PutLater(PurgeResults{s.now - s.options.result_kept_after_delivery,
                             s.now - s.options.result_kept_undelivered, s.now - kRowsKept,
                             s.now - kUsageKept});
}

void ContinuePurge(State& s) {
  if (s.is_forgetting) ForgetRequests(s);
}

}  // namespace lathe::engine
