// One Watch stream for all waiting polls of the gateway: no thread and no RPC per poll.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "services/api-gateway/engine_client/engine_client.h"
#include "services/api-gateway/engine_client/engine_stream.h"

namespace lathe::gateway {

// Update about a watched request. An update with `is_done` or an error is the last.
struct WatchUpdate {
  // True if the request has ended. The result is in `result` or can be fetched.
  bool is_done = false;
  // Result, if it is small and this subscriber's key may see it. Null: it must be fetched.
  std::shared_ptr<const v1::OperationResult> result;
  // Reason why the request cannot be watched: unknown, foreign or expired. OK: it can.
  absl::Status error;
  v1::QueueState queue_state = v1::QUEUE_STATE_UNSPECIFIED;
  std::string queue_state_reason;
};

// Keeps the stream up, with jitter between attempts, and renews all subscriptions after a
// reconnect. A request stays subscribed for a moment after its last subscriber has left, because
// most clients whose poll ends without a result poll again at once. If there are several engines,
// the client switches to the next one when the current one does not lead, cannot be reached or is
// silent. Any thread.
class WatchClient {
 public:
  // Called on gRPC's threads; must not block.
  using Callback = std::function<void(const WatchUpdate&)>;

  // Connects as soon as `executor` runs. `engine` must outlive it. See is_available for
  // `outage_grace`.
  WatchClient(asio::any_io_executor executor, EngineClient& engine,
              absl::Duration outage_grace = absl::ZeroDuration());
  // Ends the stream and waits for it. `executor` must have stopped running.
  ~WatchClient();

  // Calls `callback` for each update about `request_id` that `api_key` may see. Returns a ticket
  // for Unsubscribe and AskAgain. A request is watched under the key that subscribed first; see
  // IsWatchedByOther.
  int64_t Subscribe(const std::string& request_id, const std::string& api_key, Callback callback);
  // A callback in progress may still be running after this returns.
  void Unsubscribe(int64_t ticket);
  // Tells the engine that the whole answer with the result was written to the client of `api_key`.
  // Has no effect while there is no stream: the result then stays undelivered.
  void Acknowledge(const std::string& request_id, const std::string& api_key);
  // Asks for the current state. An update follows even if nothing has changed.
  void AskAgain(int64_t ticket);

  // Returns true if `request_id` is watched under another key. Subscribe then does not check
  // whether `api_key` may see it.
  bool IsWatchedByOther(const std::string& request_id, const std::string& api_key) const;

  // Returns false while the engine cannot be reached.
  bool is_connected() const;
  // Returns false before the first connection, and once the engine could not be reached for
  // `outage_grace`. A change of the leader is shorter, so balancers keep sending requests.
  bool is_available() const;
  int64_t num_subscriptions() const;

  // Stops reconnecting and ends the stream.
  void Stop();

 private:
  using WatchStream = EngineStream<v1::Engine, v1::WatchRequest, v1::WatchResponse>;

  struct Subscriber {
    std::string request_id;
    std::string api_key;
    Callback callback;
  };
  struct Watched {
    // Key under which the request is subscribed.
    std::string api_key;
    std::set<int64_t> tickets;
    // Time, by SteadyNow, when the last subscriber left. Meaningless while there is a subscriber.
    absl::Time left_at;
  };
  struct Left {
    absl::Time at;
    std::string request_id;
  };

  // Runs on the timers' strand.
  void Connect();
  // Calls Connect on the timers' strand after a pause. Any thread.
  void ScheduleConnect();
  // Runs on the timers' strand. Sends a heartbeat now and then periodically until Stop.
  void ScheduleHeartbeats();
  // Unsubscribes requests that have had no subscriber for a while.
  void ForgetLeft();
  // Ends the stream if its engine hangs and there is another engine.
  void LeaveSilentEngine();
  bool IsSilentLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnConnected();
  void OnResponse(const v1::WatchResponse& response);
  void OnDone(const std::string& address, const grpc::Status& status);
  struct Addressee {
    Callback callback;
    // True if the engine checked the subscriber's key.
    bool may_see_result = false;
  };
  // Updates the subscriptions for `response`. Returns the callbacks to call.
  std::vector<Addressee> TakeAddresseesLocked(const v1::WatchResponse& response)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Called under the lock, so that messages about one request keep their order.
  void EnqueueLocked(v1::WatchRequest message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Sends the queued messages. The lock must not be held.
  void Flush();
  bool HasNoStreamLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return num_streams_ == 0; }

  EngineClient& engine_;
  const absl::Duration outage_grace_;
  asio::steady_timer retry_;
  asio::steady_timer heartbeat_timer_;
  mutable absl::Mutex mu_;
  std::unordered_map<int64_t, Subscriber> subscribers_ ABSL_GUARDED_BY(mu_);
  std::unordered_map<std::string, Watched> watched_ ABSL_GUARDED_BY(mu_);
  // Requests that lost their last subscriber, oldest first. Some have a new subscriber by now.
  std::deque<Left> left_ ABSL_GUARDED_BY(mu_);
  int64_t next_ticket_ ABSL_GUARDED_BY(mu_) = 1;
  // The latest stream; null before the first. A stream that has ended stays until the next one or
  // the destructor replaces it.
  std::shared_ptr<WatchStream> stream_ ABSL_GUARDED_BY(mu_);
  // Number of streams that have not called OnDone.
  int num_streams_ ABSL_GUARDED_BY(mu_) = 0;
  // Address of `stream_`, and its start and last message by SteadyNow.
  std::string address_ ABSL_GUARDED_BY(mu_);
  absl::Time began_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  absl::Time heard_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();  // infinite past: no message yet
  // Start of the first stream of the current outage. Infinite future if there is no outage.
  absl::Time outage_began_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  // True from the first failure to the next success.
  bool is_down_ ABSL_GUARDED_BY(mu_) = false;
  bool was_up_ ABSL_GUARDED_BY(mu_) = false;  // at any time
  // Time of the first failure since the last success. Infinite past until the first success.
  absl::Time down_since_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  bool is_stopped_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace lathe::gateway
