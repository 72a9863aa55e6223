#include "services/engine/rpc/machine_series.h"

#include <sys/resource.h>

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "libs/common/memory/process_memory.h"
#include "services/engine/series/metric_names.h"

namespace lathe::engine {
namespace {

void Add(std::vector<NamedPoint>& points, std::string name, double value) {
  points.push_back({.name = std::move(name), .value = value});
}

double CpuSeconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  constexpr double kMicro = 1e-6;
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         kMicro * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

// Sums the memory of a group's ranks by owner.
void AddMemory(const v1::GroupStatus& group, std::vector<NamedPoint>& points) {
  std::map<std::string, int64_t> bytes;
  for (const v1::RankStatus& rank : group.ranks()) {
    if (!rank.has_memory()) continue;
    bytes["used"] += rank.memory().used_bytes();
    bytes["limit"] += rank.memory().limit_bytes();
    for (const v1::MemoryShare& share : rank.memory().shares()) {
      bytes[share.owner()] += share.used_bytes();
    }
  }
  for (const auto& [owner, num_bytes] : bytes) {
    Add(points, absl::StrCat("memory/", owner, "_bytes"), static_cast<double>(num_bytes));
  }
}

}  // namespace

std::string SeriesOfTenant(const std::string& tenant_id) {
  return absl::StrCat("machine:tenant/", tenant_id);
}

std::string SeriesOfGroup(const std::string& group) {
  return absl::StrCat("machine:group/", group);
}

int64_t MachineStepOf(absl::Time time) {
  return absl::ToUnixSeconds(time) / absl::ToInt64Seconds(kMachineStep);
}

MachineSeries::MachineSeries(Runtime& runtime, AdminService::AttachedGroups attached_groups)
    : runtime_(runtime),
      attached_groups_(std::move(attached_groups)),
      cpu_seconds_(CpuSeconds()),
      task_("engine-machine", kMachineStep, [this] { AppendRound(); }) {}

void MachineSeries::AppendRound() {
  const absl::Time now = absl::FromUnixNanos(runtime_.NowNanos());
  AppendService(now);
  AppendTenants(now);
  const std::map<std::string, v1::GroupStatus> groups =
      DescribeGroups(runtime_, attached_groups_());
  for (const auto& [name, group] : groups) AppendGroup(group, now);
  std::erase_if(counters_, [&groups](const auto& known) { return !groups.contains(known.first); });
}

void MachineSeries::Append(const std::string& owner, const std::string& tenant_id, absl::Time now,
                           std::vector<NamedPoint> points) {
  auto entry = std::make_shared<PointEntry>();
  entry->run_id = owner;
  entry->tenant_id = tenant_id;
  entry->kind = EntryKind::kUsers;
  entry->unix_ms = absl::ToUnixMillis(now);
  for (NamedPoint& point : points) {
    if (!IsMetricName(point.name)) continue;
    point.step = MachineStepOf(now);
    point.unix_ms = entry->unix_ms;
    entry->points.push_back(std::move(point));
  }
  runtime_.AppendOwnPoints(std::move(entry));
}

void MachineSeries::AppendService(absl::Time now) {
  std::vector<NamedPoint> points;
  for (const QueueCount& count : runtime_.AllQueues()) {
    Add(points, absl::StrCat("queue/", std::string(TraitsOf(count.kind).name), "_waiting"),
        static_cast<double>(count.num_waiting));
  }
  const QueueSums all = runtime_.AllQueueSums();
  Add(points, "queue/waiting", static_cast<double>(all.waiting));
  Add(points, "queue/running", static_cast<double>(all.running));
  const double cpu_seconds = CpuSeconds();
  Add(points, "engine/cpu_share",
      (cpu_seconds - std::exchange(cpu_seconds_, cpu_seconds)) /
          absl::ToDoubleSeconds(kMachineStep));
  Add(points, "engine/resident_bytes", static_cast<double>(ResidentMemoryBytes()));
  Append(kServiceSeries, "", now, std::move(points));
}

void MachineSeries::AppendTenants(absl::Time now) {
  std::set<std::string> tenants;
  const std::vector<TenantQueue> queues = runtime_.LongestQueues(kMaxTenants);
  const QueueSums all = runtime_.AllQueueSums();
  const auto append = [this, now, total = all.waiting + all.running](const TenantQueue& queue) {
    const int64_t own = queue.sums.waiting + queue.sums.running;
    std::vector<NamedPoint> points;
    Add(points, "queue/waiting", static_cast<double>(queue.sums.waiting));
    Add(points, "queue/running", static_cast<double>(queue.sums.running));
    Add(points, "queue/share",
        total == 0 ? 0 : static_cast<double>(own) / static_cast<double>(total));
    Append(SeriesOfTenant(queue.tenant_id), queue.tenant_id, now, std::move(points));
  };
  for (const TenantQueue& queue : queues) {
    tenants.insert(queue.tenant_id);
    append(queue);
  }
  // The curve of a tenant whose requests have ended goes down to 0.
  for (const std::string& tenant_id : tenants_) {
    if (!tenants.contains(tenant_id)) append({.tenant_id = tenant_id});
  }
  tenants_ = std::move(tenants);
}

void MachineSeries::AppendGroup(const v1::GroupStatus& group, absl::Time now) {
  std::vector<NamedPoint> points;
  Add(points, "ranks", static_cast<double>(group.ranks_size()));
  Add(points, "ready", group.state() == "ready" ? 1 : 0);
  AddMemory(group, points);
  Counters& before = counters_[group.group()];
  const Counters counters = {.train_passes = group.counters().train_passes(),
                             .generated_tokens = group.counters().generated_tokens(),
                             .epoch = group.epoch()};
  // A new process counts from 0.
  const bool follows = before.epoch == counters.epoch && counters.epoch > 0 &&
                       before.train_passes <= counters.train_passes &&
                       before.generated_tokens <= counters.generated_tokens;
  if (follows && group.has_counters()) {
    const double seconds = absl::ToDoubleSeconds(kMachineStep);
    Add(points, "work/train_passes_per_second",
        static_cast<double>(counters.train_passes - before.train_passes) / seconds);
    Add(points, "work/generated_tokens_per_second",
        static_cast<double>(counters.generated_tokens - before.generated_tokens) / seconds);
  }
  before = counters;
  Append(SeriesOfGroup(group.group()), "", now, std::move(points));
}

}  // namespace lathe::engine
