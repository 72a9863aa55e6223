#include "services/engine/rpc/read_threads.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "libs/common/errors.h"
#include "libs/common/priority/background_priority.h"

namespace lathe::engine {

ReadThreads::ReadThreads(const Options& options)
    : max_running_(std::max(1, options.num_threads / 2)),
      max_waiting_(options.max_waiting),
      is_background_(options.is_background),
      answers_(options.max_waiting) {
  for (int i = 0; i < options.num_threads && !is_background_; ++i) {
    if (options.makes_copies) {
      threads_.emplace_back("engine-copies", [this] { Run(); });
    } else {
      threads_.emplace_back("engine-reads", [this] { Run(); });
    }
  }
  if (!is_background_) return;
  answer_thread_ = std::make_unique<NamedThread>("engine-answers", [this] { RunAnswers(); });
  for (int i = 0; i < options.num_threads; ++i) {
    threads_.emplace_back("engine-searches", [this] { Run(); });
  }
}

ReadThreads::~ReadThreads() {
  {
    absl::MutexLock lock(&mu_);
    closed_ = true;
  }
  threads_.clear();
  answers_.Close();
}

absl::Status ReadThreads::TryRun(const std::string& tenant_id, std::function<void()> read,
                                 std::function<void()> answer) {
  absl::MutexLock lock(&mu_);
  Tenant& tenant = tenants_[tenant_id];
  if (tenant.waiting.size() >= max_waiting_) {
    return WithRetryAfter(
        WithDetail(absl::ResourceExhaustedError(absl::StrFormat(
                       "%d reads of this tenant wait, limit is %d", max_waiting_, max_waiting_)),
                   "too_many_reads"),
        absl::Seconds(1));
  }
  tenant.waiting.push_back({std::move(read), std::move(answer)});
  GiveTurnLocked(tenant_id, tenant);
  return absl::OkStatus();
}

void ReadThreads::GiveTurnLocked(const std::string& tenant_id, Tenant& tenant) {
  if (tenant.has_turn || tenant.waiting.empty() || tenant.num_running >= max_running_) return;
  tenant.has_turn = true;
  turns_.push_back(tenant_id);
}

ReadThreads::Work ReadThreads::TakeLocked(std::string& tenant_id) {
  tenant_id = std::move(turns_.front());
  turns_.pop_front();
  Tenant& tenant = tenants_.at(tenant_id);
  Work work = std::move(tenant.waiting.front());
  tenant.waiting.pop_front();
  tenant.has_turn = false;
  ++tenant.num_running;
  GiveTurnLocked(tenant_id, tenant);
  return work;
}

void ReadThreads::EndLocked(const std::string& tenant_id) {
  Tenant& tenant = tenants_.at(tenant_id);
  --tenant.num_running;
  GiveTurnLocked(tenant_id, tenant);
  if (tenant.num_running == 0 && tenant.waiting.empty()) tenants_.erase(tenant_id);
}

void ReadThreads::Run() {
  if (is_background_) YieldProcessor("engine-searches");
  std::string tenant_id;
  for (;;) {
    Work work;
    {
      absl::MutexLock lock(&mu_);
      mu_.Await(absl::Condition(this, &ReadThreads::HasWorkLocked));
      if (turns_.empty()) return;
      work = TakeLocked(tenant_id);
    }
    work.read();
    work.read = nullptr;  // before the tenant's next read counts
    if (is_background_ && work.answer) {
      answers_.Push(std::move(work.answer));
    } else if (work.answer) {
      work.answer();
    }
    absl::MutexLock lock(&mu_);
    EndLocked(tenant_id);
  }
}

void ReadThreads::RunAnswers() {
  while (const std::optional<std::function<void()>> answer = answers_.Pop()) (*answer)();
}

}  // namespace lathe::engine
