// Positions of unfinished requests in the queues, and their description in words, for the callers
// that wait for them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "services/engine/core/actions.h"
#include "services/engine/runtime/result_hub.h"
#include "services/engine/runtime/waiting_order.h"
#include "services/engine/store/rows.h"

namespace lathe::engine {

struct QueuePlace {
  bool is_running = false;
  bool is_model_away = false;
  int64_t missing_seq = 0;    // lower seq that has not arrived and that it waits for; 0: none
  int64_t gap_closes_in = 0;  // time until the gap is abandoned, in nanoseconds
  std::string model_reason;   // other reason why its model does not run; empty: none
  // Operation of the same model that must end first; seq 0: none.
  OperationKind after_kind = OperationKind::kForwardBackward;
  int64_t after_seq = 0;
  // Requests of the same model or sampler that were accepted earlier and have not run yet.
  int64_t requests_before = 0;
  int64_t tokens_before = 0;  // 0 for samples, whose length is unknown
};

// Unfinished requests of one operation.
struct QueueCount {
  OperationKind kind = OperationKind::kForwardBackward;
  int64_t num_waiting = 0;
  int64_t num_running = 0;
};

// Unfinished requests of all operations.
struct QueueSums {
  int64_t waiting = 0;
  int64_t running = 0;
};
struct TenantQueue {
  std::string tenant_id;
  QueueSums sums = {};
};

// Tracks every unfinished request; it influences no decision. The core's thread and the callers
// share its lock, so no function visits more than O(log n) requests. Thread-safe.
class QueueView {
 public:
  void OnAccepted(const RequestRow& row);
  void OnDispatched(const std::string& request_id);
  void OnCompleted(const std::string& request_id);
  void SetModelState(const NotifyModelState& state);
  // Returns why no request of a model starts, for people; empty: no special reason.
  std::string ReasonOf(const std::string& model_id);

  // Returns the counts that are not zero, of a tenant or of all of them.
  std::vector<QueueCount> CountsOf(const std::string& tenant_id);
  std::vector<QueueCount> CountsOfAll();
  QueueSums SumsOfAll();
  // Returns the tenants with the most unfinished requests, at most `max_tenants`. Visits each
  // tenant that has one, so it is for rare calls.
  std::vector<TenantQueue> Longest(size_t max_tenants);

  // Returns nullopt when the request is not unfinished.
  std::optional<QueuePlace> PlaceOf(const std::string& request_id, int64_t now);

  // Returns the number of requests that all calls of PlaceOf have visited.
  int64_t NumVisitedForTest();

 private:
  using Order = int64_t;  // sequence number of acceptance

  struct Item {
    OperationKind kind = OperationKind::kForwardBackward;
    int64_t seq = 0;
    bool is_running = false;
  };
  // A model, sampler or session.
  struct Owner {
    bool is_model = false;  // true if its requests have an order
    std::map<Order, Item> items;
    std::set<Order> barriers;  // those of a model
    WaitingOrder waiting;      // items that are not running
  };
  struct Key {
    std::string owner;
    Order order = 0;
    std::string tenant_id;
  };
  using Counts = std::map<OperationKind, QueueCount>;

  // Adds to the counts of a request's tenant and of all.
  void CountLocked(const std::string& tenant_id, OperationKind kind, int64_t waiting,
                   int64_t running) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static QueueSums SumOf(const Counts& counts);
  static std::vector<QueueCount> Listed(const Counts& counts);

  // Returns the item of the same model that must end before `order` runs; nullptr: none.
  static const Item* Predecessor(const Owner& owner, Order order);

  absl::Mutex mu_;
  Order last_order_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t num_visited_ ABSL_GUARDED_BY(mu_) = 0;
  std::unordered_map<std::string, Owner> owners_ ABSL_GUARDED_BY(mu_);
  std::unordered_map<std::string, Key> keys_ ABSL_GUARDED_BY(mu_);  // by request_id
  Counts counts_ ABSL_GUARDED_BY(mu_);
  // Tenants without an unfinished request are left out.
  std::unordered_map<std::string, Counts> tenant_counts_ ABSL_GUARDED_BY(mu_);
  std::unordered_map<std::string, NotifyModelState> model_states_ ABSL_GUARDED_BY(mu_);
};

// "waiting for its turn; 3 requests with 5120 tokens are before it". `group`: status of the group
// that serves the request. Its reason comes first while the group is paused.
QueueStatus DescribeQueue(const QueueStatus& group, const std::optional<QueuePlace>& place);

}  // namespace lathe::engine
