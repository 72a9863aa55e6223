// Turns changes into events, and gives each to the streams that want it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "libs/common/concurrency/named_thread.h"
#include "protos/lathe/v1/events.pb.h"
#include "services/engine/rpc/admin_service.h"
#include "services/engine/rpc/read_threads.h"
#include "services/engine/runtime/change_log.h"
#include "services/engine/runtime/runtime.h"
#include "services/engine/series/run_series.h"

namespace lathe::engine {

// A stream to a gateway. Its functions must not call EventFeeds, except CheckKeys.
class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void Push(const v1::EventsResponse& response) = 0;
  // Ends the subscriptions whose credentials are no longer good.
  virtual void CheckKeys() = 0;
  virtual void EndStream() = 0;
};

// A feed has the changes of one tenant, or the points of one run. It exists while a stream is its
// member. Owns the thread that publishes. Thread-safe.
class EventFeeds {
 public:
  // Points of an event. A viewer queries further ones.
  static constexpr size_t kMaxPoints = 2000;

  // The arguments must outlive this. `attached_groups` as in AdminService.
  EventFeeds(Runtime& runtime, ReadThreads& reads, AdminService::AttachedGroups attached_groups);
  // Waits for reads in progress. All streams must have ended.
  ~EventFeeds();

  // Receives the feed's id, or NotFound if the tenant has no such run. Returns false if the feed is
  // no longer wanted.
  using OnJoined = std::function<bool(const absl::StatusOr<int64_t>& feed_id)>;
  // Makes `sink` a member of the tenant's feed, or of a run's. May read the store, on another
  // thread. `on_joined` must not call this object. Events follow it.
  void Join(const std::string& tenant_id, const std::string& run_id,
            const std::shared_ptr<EventSink>& sink, OnJoined on_joined);
  // Each call takes back one Join.
  void Leave(int64_t feed_id, const EventSink* sink);

  void AddStream(const std::shared_ptr<EventSink>& sink);
  void RemoveStream(const EventSink* sink);
  // Ends all streams, so that a server can shut down.
  void EndStreams();

 private:
  // Tenant and run; no run: the tenant's feed.
  using Key = std::pair<std::string, std::string>;
  struct Joining {
    std::weak_ptr<EventSink> sink;
    OnJoined on_joined;
  };
  struct Member {
    std::weak_ptr<EventSink> sink;
    int64_t num_joins = 0;
  };
  struct Feed {
    Key key;
    // Set once the heads of the run are read. A tenant's feed has none.
    std::optional<RunSeries> run;
    std::vector<RunBatch> waiting;  // until `run` is set
    std::vector<Joining> joining;
    std::map<const EventSink*, Member> members;
    std::optional<std::string> last_queues;  // serialized
  };

  // Reads the heads of a run, on one of reads_.
  absl::StatusOr<RunSeries> Load(const Key& key);
  // Returns the id of the feed, which is made if it is missing.
  std::pair<int64_t, bool> FindOrMakeLocked(const Key& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnLoaded(int64_t feed_id, absl::StatusOr<RunSeries> run);
  static void AddMember(int64_t feed_id, Feed& feed, const Joining& joining);
  void RemoveIfUnusedLocked(int64_t feed_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static void Send(const Feed& feed, const v1::EventsResponse& response);

  // These run on the thread.
  void Publish();
  bool HasFeeds();
  void CheckKeys();
  void PublishRun(int64_t feed_id, Feed& feed, const std::vector<RunBatch>& batches);
  void PublishTenant(int64_t feed_id, Feed& feed, const ChangeLog::Tenant& changes);
  void PublishQueues(int64_t feed_id, Feed& feed);
  void PublishGroups(const std::vector<v1::GroupState>& groups) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::vector<std::shared_ptr<EventSink>> Streams();

  Runtime& runtime_;
  ReadThreads& reads_;
  const AdminService::AttachedGroups attached_groups_;
  absl::Mutex mu_;
  int64_t num_loading_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t last_feed_id_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<int64_t, Feed> feeds_ ABSL_GUARDED_BY(mu_);
  std::map<Key, int64_t> ids_ ABSL_GUARDED_BY(mu_);
  std::map<const EventSink*, std::weak_ptr<EventSink>> streams_ ABSL_GUARDED_BY(mu_);
  std::string last_groups_ ABSL_GUARDED_BY(mu_);  // serialized
  int64_t num_rounds_ = 0;                        // used by the thread alone
  PeriodicTask publisher_;
};

}  // namespace lathe::engine
