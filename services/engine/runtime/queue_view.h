// Where the unfinished requests are: what callers that wait are told.
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
#include "services/engine/store/rows.h"

namespace lathe::engine {

// Of one request, about a second old at most.
struct QueuePlace {
  bool is_running = false;
  bool is_model_away = false;
  int64_t missing_seq = 0;    // that it waits for; 0: none
  int64_t gap_closes_in = 0;  // nanoseconds
  std::string model_reason;   // what else holds its model up; empty: nothing
  // An operation of the same model that must end first; seq 0: none.
  OperationKind after_kind = OperationKind::kForwardBackward;
  int64_t after_seq = 0;
  // That wait and come earlier: of the same model or sampler, and those whose turn is before.
  int64_t requests_before = 0;
  int64_t tokens_before = 0;  // 0 of samples, whose length nobody knows
  double seconds = 0;         // until its end, from what was done of late; 0: unknown
};

// Told of every request that is under way; decides nothing. The order in which the scheduler takes
// work is not known here, only its rule (shares of tokens by tenant, turns within one), so places
// are estimates. Thread-safe; looking at all requests is done once a second, and only if asked.
class QueueView {
 public:
  void OnAccepted(const RequestRow& row);
  void SetGroup(const std::string& request_id, const std::string& group);
  void OnDispatched(const std::string& request_id, const std::string& group, int64_t now);
  void OnExecuted(const std::string& request_id, int64_t now);
  void OnCompleted(const std::string& request_id, int64_t now);
  void SetModelState(const NotifyModelState& state);

  // nullopt: not under way.
  std::optional<QueuePlace> PlaceOf(const std::string& request_id, int64_t now);

 private:
  using Order = int64_t;                        // of acceptance
  using LaneId = std::pair<std::string, bool>;  // group, of samples

  struct Item {
    OperationKind kind = OperationKind::kForwardBackward;
    int64_t seq = 0;
    int64_t tokens = 0;         // 0 of a sample
    int64_t cost = 0;           // tokens, at least 1
    int64_t dispatched_at = 0;  // 0: it waits
    bool is_executed = false;
  };
  struct Owner {
    std::string tenant;
    LaneId lane;
    bool is_model = false;  // its requests have an order
    std::map<Order, Item> items;
  };
  struct Key {
    std::string owner;
    Order order = 0;
  };

  // All of it at one moment.
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
    Waiting before;             // of the owner
    int64_t last_barrier = -1;  // index, before it
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
    std::map<std::string, std::vector<const Queue*>> queues;  // of a tenant
    std::map<Order, int64_t> running;                         // cost through this one
    double rate = 0;                                          // cost a second; 0: unknown
  };
  struct Snapshot {
    int64_t taken_at = 0;
    std::map<std::string, Queue> queues;  // by owner
    std::map<LaneId, Lane> lanes;
  };

  // What is served before something of `cost` that has `own` of its `queue` before it.
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

}  // namespace lathe::engine
