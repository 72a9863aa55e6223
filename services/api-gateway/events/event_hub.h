// One stream of events from the engine for all viewers of the gateway.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "protos/lathe/v1/events.grpc.pb.h"
#include "services/api-gateway/engine_client/engine_client.h"
#include "services/api-gateway/engine_client/engine_stream.h"
#include "services/api-gateway/events/event_ring.h"
#include "services/api-gateway/events/viewer.h"

namespace lathe::gateway {

// Each event is encoded once. A viewer has no thread and no queue: it is a place in the rings of
// its feeds. It reads `resync` where it cannot go on without a gap: after an outage of the engine,
// at another gateway, or when it was too slow. The stream begins with the first viewer. Any thread.
class EventHub {
 public:
  struct Options {
    // Viewers in all, and of one tenant.
    int64_t max_viewers = 4000;
    int64_t max_viewers_per_tenant = 1000;
  };

  // `engine` must outlive it.
  EventHub(asio::any_io_executor executor, EngineClient& engine, const Options& options);
  // Ends the stream and waits for it. `executor` must have stopped running.
  ~EventHub();

  // Returns Unavailable ("too_many_viewers") above the bound.
  absl::StatusOr<std::shared_ptr<Viewer>> Add(const asio::any_io_executor& executor,
                                              ViewerWish wish);
  int64_t num_viewers() const;

  // Ends all viewers, and every viewer that comes later.
  void EndAll();
  // Ends the stream and the timer.
  void Stop();

 private:
  friend class Viewer;
  using Stream = EngineStream<v1::Events, v1::EventsRequest, v1::EventsResponse>;

  struct Subscription {
    std::string api_key;
    std::string run_id;
    Viewer* viewer = nullptr;  // null: it has left
    int64_t feed_id = 0;       // 0: not answered
    // The engine had no room for it and is asked again; infinite future: no.
    absl::Time asks_again_at = absl::InfiniteFuture();
  };
  struct Feed {
    EventRing ring;
    bool is_of_tenant = false;
    std::set<Viewer*> viewers;
    int64_t num_subscriptions = 0;
  };
  struct Left {
    absl::Time at;
    int64_t subscription_id = 0;
  };

  // For Viewer. Unset: the engine has not answered yet.
  std::optional<absl::Status> AnswerTo(Viewer& viewer);
  // Returns what the viewer has to send next; empty: nothing yet. An error ends the viewer.
  absl::StatusOr<std::string> Take(Viewer& viewer);
  void Remove(Viewer& viewer);

  // Run on the timer's strand.
  void Connect();
  void RunTimer();

  void OnResponse(const v1::EventsResponse& response);
  void OnDone(const std::string& address, const grpc::Status& status);
  void OnSubscribedLocked(const v1::EventsSubscribed& subscribed)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnRefusedLocked(const v1::EventsRefused& refused) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnEventLocked(const v1::FeedEvent& event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The engine has accepted all subscriptions of the viewer.
  void OnJoinedLocked(Viewer& viewer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  void SubscribeLocked(const std::string& run_id, Viewer& viewer)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SendLocked(int64_t subscription_id, const Subscription& subscription)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void UnsubscribeLocked(int64_t subscription_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Makes rings forget what is old, and sooner if all of them take much memory.
  void AgeRingsLocked(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Asks again for what the engine had no room for.
  void AskAgainLocked(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Gives the newest event to the viewers of a feed.
  void AddToFeedLocked(Feed& feed, EventTopic topic, const EventText& text)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Unsubscribes what has had no viewer for a while.
  void ForgetLeftLocked(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static void WakeLocked(Viewer& viewer);
  // Makes the viewer go on from now, and tells it why it has to read everything again.
  void ResyncLocked(Viewer& viewer, const char* reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::string IdOf(int64_t number) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool HasAllLocked(const Viewer& viewer, int64_t number) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool HasNoStreamLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return num_streams_ == 0; }
  void Flush();

  EngineClient& engine_;
  const Options options_;
  // Tells the events of this process from those of others.
  const std::string boot_id_;
  asio::steady_timer timer_;

  mutable absl::Mutex mu_;
  std::set<Viewer*> viewers_ ABSL_GUARDED_BY(mu_);
  std::map<int64_t, Subscription> subscriptions_ ABSL_GUARDED_BY(mu_);
  std::map<int64_t, Feed> feeds_ ABSL_GUARDED_BY(mu_);
  int64_t num_refused_ ABSL_GUARDED_BY(mu_) = 0;  // subscriptions that ask again
  // Subscriptions whose viewers have left, oldest first: most clients come back at once.
  std::deque<Left> left_ ABSL_GUARDED_BY(mu_);
  int64_t last_subscription_id_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t last_number_ ABSL_GUARDED_BY(mu_) = 0;
  // Term of the engine that was heard last; 0: none.
  int64_t term_ ABSL_GUARDED_BY(mu_) = 0;
  // Why viewers have to read everything again after the present outage.
  std::string outage_ ABSL_GUARDED_BY(mu_) = "engine_unreachable";
  // As in WatchClient.
  std::shared_ptr<Stream> stream_ ABSL_GUARDED_BY(mu_);
  int num_streams_ ABSL_GUARDED_BY(mu_) = 0;
  std::string address_ ABSL_GUARDED_BY(mu_);
  absl::Time next_attempt_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  // Not OK: the engine has no events, as it said last.
  absl::Status stream_error_ ABSL_GUARDED_BY(mu_);
  bool is_ending_ ABSL_GUARDED_BY(mu_) = false;
  bool is_stopped_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace lathe::gateway
