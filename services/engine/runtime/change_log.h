// Changes for those who follow them: runs with new points or another state, checkpoints.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "services/engine/series/points.h"
#include "services/engine/store/rows.h"

namespace lathe::engine {

// Collects changes of the tenants and runs that somebody follows, until Take. The store's thread
// adds them. Costs next to nothing while nobody follows anything. Thread-safe.
class ChangeLog {
 public:
  // More changed runs of a tenant are not named.
  static constexpr size_t kMaxRuns = 1000;

  struct Runs {
    std::set<std::string> run_ids;
    bool has_more = false;
    bool empty() const { return run_ids.empty(); }
  };
  // Changes of one tenant.
  struct Tenant {
    Runs runs;         // new, in another state, or with new points
    Runs checkpoints;  // runs whose checkpoints have changed
  };
  struct Changes {
    std::map<std::string, Tenant> tenants;
    // Batches of followed runs, in order. SeriesBook has the same points in memory, and accepts no
    // more when it is full.
    std::unordered_map<std::string, std::vector<RunBatch>> batches;
  };

  // Each call needs a later one of its opposite.
  void FollowTenant(const std::string& tenant_id);
  void LeaveTenant(const std::string& tenant_id);
  void FollowRun(const std::string& run_id);
  void LeaveRun(const std::string& run_id);

  // A write or a batch of points is durable.
  void OnWrite(const Write& write);
  void OnPoints(int64_t journal_id, const std::vector<PointEntryPtr>& entries);

  // Returns the changes since the last call.
  Changes Take();

 private:
  using Followers = std::unordered_map<std::string, int64_t>;

  static void Leave(Followers& followers, const std::string& id);
  static void AddRun(Runs& runs, const std::string& run_id);
  // Returns null if nobody follows the tenant.
  Tenant* FindLocked(const std::string& tenant_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  absl::Mutex mu_;
  Followers tenants_ ABSL_GUARDED_BY(mu_);
  Followers runs_ ABSL_GUARDED_BY(mu_);
  Changes changes_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lathe::engine
