// Keeps numbers of the machine over time: queues, groups of workers, the engine itself.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "libs/common/concurrency/named_thread.h"
#include "services/engine/rpc/admin_service.h"
#include "services/engine/runtime/runtime.h"
#include "services/engine/series/points.h"

namespace lathe::engine {

// Time between two points. A step is so long, counted from the Unix epoch.
inline constexpr absl::Duration kMachineStep = absl::Seconds(15);

// Names under which the store keeps them, beside the ids of runs.
inline constexpr char kServiceSeries[] = "machine:service";
std::string SeriesOfTenant(const std::string& tenant_id);
std::string SeriesOfGroup(const std::string& group);

// Returns the step of a time.
int64_t MachineStepOf(absl::Time time);

// Appends a point to each series every kMachineStep, through the same journal as the points of
// runs:
//   of the service  queue/waiting, queue/running and OPERATION_waiting; engine/cpu_share,
//                   engine/resident_bytes
//   of a tenant     queue/waiting, queue/running and queue/share of all unfinished requests, while
//                   it has some
//   of a group      ranks, ready (0 or 1), memory/OWNER_bytes, memory/used_bytes and limit_bytes of
//                   all ranks, work/train_passes_per_second, work/generated_tokens_per_second
// A round without room in the journal is left out.
class MachineSeries {
 public:
  // Tenants of a round, those with the most unfinished requests.
  static constexpr size_t kMaxTenants = 1000;

  // The arguments must outlive this. `attached_groups` as in AdminService.
  MachineSeries(Runtime& runtime, AdminService::AttachedGroups attached_groups);

 private:
  struct Counters {
    int64_t train_passes = 0;
    int64_t generated_tokens = 0;
    int64_t epoch = 0;
  };

  void AppendRound();
  void AppendService(absl::Time now);
  void AppendTenants(absl::Time now);
  void AppendGroup(const v1::GroupStatus& group, absl::Time now);
  void Append(const std::string& owner, const std::string& tenant_id, absl::Time now,
              std::vector<NamedPoint> points);

  Runtime& runtime_;
  const AdminService::AttachedGroups attached_groups_;
  // The thread alone uses the members below.
  std::map<std::string, Counters> counters_;  // by group
  std::set<std::string> tenants_;             // of the last round
  double cpu_seconds_ = 0;
  PeriodicTask task_;
};

}  // namespace lathe::engine
