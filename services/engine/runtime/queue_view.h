// Positions of unfinished requests in the queues, and their description in words, for the callers
// that wait for them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "services/engine/core/actions.h"
#include "services/engine/runtime/rate_meter.h"
#include "services/engine/runtime/result_hub.h"
#include "services/engine/store/rows.h"

namespace lathe::engine {

// Position of one request, at most about a second old.
struct QueuePlace {
  bool is_running = false;
  bool is_model_away = false;
  int64_t missing_seq = 0;    // lower seq that has not arrived and that it waits for; 0: none
  int64_t gap_closes_in = 0;  // time until the gap is abandoned, in nanoseconds
  std::string model_reason;   // other reason why its model does not run; empty: none
  // Operation of the same model that must end first; seq 0: none.
  OperationKind after_kind = OperationKind::kForwardBackward;
  int64_t after_seq = 0;
  // Waiting requests that the scheduler serves earlier: those of the same model or sampler, and
  // those of other queues by its turns and shares.
  int64_t requests_before = 0;
  int64_t tokens_before = 0;  // 0 for samples, whose length is unknown
  double seconds = 0;         // estimated time until its end, from recent work; 0: unknown
};

// Tracks every unfinished request; it influences no decision. It has the scheduler's rule (token
// shares by tenant, turns within a tenant), but not the scheduler's actual order, so positions are
// estimates. Thread-safe. It scans all requests at most once a second, and only on demand.
class QueueView {
 public:
  void OnAccepted(const RequestRow& row);
  void SetGroup(const std::string& request_id, const std::string& group);
  void OnDispatched(const std::string& request_id, const std::string& group, int64_t now);
  void OnExecuted(const std::string& request_id, int64_t now);
  void OnCompleted(const std::string& request_id, int64_t now);
  void SetModelState(const NotifyModelState& state);

  // Returns nullopt when the request is not unfinished.
  std::optional<QueuePlace> PlaceOf(const std::string& request_id, int64_t now);

 private:
  using Order = int64_t;                        // sequence number of acceptance
  using LaneId = std::pair<std::string, bool>;  // group, true for samples

  struct Item {
    OperationKind kind = OperationKind::kForwardBackward;
    int64_t seq = 0;
    int64_t tokens = 0;         // 0 for a sample
    int64_t cost = 0;           // tokens, at least 1
    int64_t dispatched_at = 0;  // 0: not dispatched yet
    bool is_executed = false;
  };
  struct Owner {
    std::string tenant;
    LaneId lane;
    bool is_model = false;  // true if its requests have an order
    std::map<Order, Item> items;
  };
  struct Key {
    std::string owner;
    Order order = 0;
  };

  // Sum over a set of waiting requests.
  struct Waiting {
    int64_t requests = 0;
    int64_t tokens = 0;
    int64_t cost = 0;
    void Add(const Waiting& other, int64_t part, int64_t whole) {
      requests += other.requests * part / whole;
      tokens += other.tokens * part / whole;
      cost += other.cost * part / whole;
    }
  };
  struct Entry {
    Order order = 0;
    Item item;
    Waiting before;             // requests of the owner that wait before it
    int64_t last_barrier = -1;  // index of the last barrier before it; -1: none
  };
  struct Queue {
    std::string tenant;
    LaneId lane;
    bool is_model = false;
    std::vector<Entry> entries;  // in order of acceptance
    Waiting waiting;
  };
  struct Lane {
    std::map<std::string, Waiting> tenants;
    std::map<std::string, std::vector<const Queue*>> queues;  // by tenant
    std::map<Order, int64_t> running;                         // cost up to the end of this request
    double rate = 0;                                          // cost per second; 0: unknown
  };
  struct Snapshot {
    int64_t taken_at = 0;
    std::map<std::string, Queue> queues;  // by owner
    std::map<LaneId, Lane> lanes;
  };

  // Returns the work that is served before a request of `cost`. `own` is the part of it in its
  // `queue`.
  static Waiting Before(const Lane& lane, const Queue& queue, Waiting own, int64_t cost);
  static void FillQueue(const Owner& owner, Queue& queue, Lane& lane);
  static QueuePlace PlaceIn(const Snapshot& snapshot, const Queue& queue, size_t index,
                            int64_t now);
  Item* FindLocked(const std::string& request_id, const Owner** owner = nullptr)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::shared_ptr<const Snapshot> SnapshotLocked(int64_t now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  absl::Mutex mu_;
  Order last_order_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<std::string, Owner> owners_ ABSL_GUARDED_BY(mu_);
  std::unordered_map<std::string, Key> keys_ ABSL_GUARDED_BY(mu_);  // by request_id
  std::map<LaneId, RateMeter> meters_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, NotifyModelState> model_states_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<const Snapshot> snapshot_ ABSL_GUARDED_BY(mu_);
};

// "waiting for its turn; 3 requests with 5120 tokens are before it; about 4 s". `group`:
// status of the group that serves the request. Its reason comes first while the group is paused.
QueueStatus DescribeQueue(const QueueStatus& group, const std::optional<QueuePlace>& place);

}  // namespace lathe::engine
