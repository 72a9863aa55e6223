// All waiting polls of the gateway over one Watch stream: no thread and no rpc per poll.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "services/api-gateway/engine_client/engine_client.h"
#include "services/api-gateway/engine_client/watch_stream.h"

namespace lathe::gateway {

// News of a watched request. After one with `is_done` or an error no other follows.
struct WatchUpdate {
  // The result is in `result` or can be fetched.
  bool is_done = false;
  // A small result that this subscriber's key may see. Null: fetch it.
  std::shared_ptr<const v1::OperationResult> result;
  // Why the request cannot be watched: unknown, foreign, expired.
  absl::Status error;
  v1::QueueState queue_state = v1::QUEUE_STATE_UNSPECIFIED;
  std::string queue_state_reason;
};

// Keeps the stream up, with jitter between attempts, and subscribes everything again after a
// reconnect. A request stays subscribed for a moment after its last subscriber has left: most
// clients whose poll ends without a result ask again at once. Of several engines it goes on to the
// next when one does not lead, cannot be reached or is silent. Any thread.
class WatchClient {
 public:
  // Called on gRPC's threads; must not block.
  using Callback = std::function<void(const WatchUpdate&)>;

  // Connects as soon as `executor` runs. `engine` must outlive it.
  WatchClient(asio::any_io_executor executor, EngineClient& engine);
  // Ends the stream and waits for it. `executor` must have stopped running.
  ~WatchClient();

  // Tells `callback` about `request_id` as `api_key` may see it; the answer is a ticket. A request
  // is watched under the key that subscribed first; see IsWatchedByOther.
  int64_t Subscribe(const std::string& request_id, const std::string& api_key, Callback callback);
  // A call in progress may still end after this.
  void Unsubscribe(int64_t ticket);
  // How things stand: an update will come, whatever they are.
  void AskAgain(int64_t ticket);

  // Whether `request_id` is watched under another key. Whether `api_key` may see it is then not
  // checked by Subscribe.
  bool IsWatchedByOther(const std::string& request_id, const std::string& api_key) const;

  // False while the engine cannot be reached.
  bool is_connected() const;
  int64_t num_subscriptions() const;

  // Stops reconnecting and ends the stream.
  void Stop();

 private:
  struct Subscriber {
    std::string request_id;
    std::string api_key;
    Callback callback;
  };
  struct Watched {
    // Under which it was subscribed.
    std::string api_key;
    std::vector<int64_t> tickets;
    // By SteadyNow, when the last one left; meaningless while there is one.
    absl::Time left_at;
  };
  struct Left {
    absl::Time at;
    std::string request_id;
  };

  // On the timers' strand.
  void Connect();
  void ScheduleConnect();
  // On the timers' strand: writes to the stream now and as long as this runs.
  void BeatFromNowOn();
  // Unsubscribes what nobody has waited for lately.
  void ForgetLeft();
  // Ends a stream whose engine hangs, when there is another engine to ask.
  void LeaveSilentEngine();
  bool IsSilentLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnConnected();
  void OnResponse(const v1::WatchResponse& response);
  void OnDone(const std::string& address, const grpc::Status& status);
  struct Addressee {
    Callback callback;
    // It subscribed under the key that the engine checked.
    bool may_see_result = false;
  };
  // Changes the books for `response`; returns whom to tell.
  std::vector<Addressee> TakeAddresseesLocked(const v1::WatchResponse& response)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Under the lock, so that messages about one request keep their order.
  void EnqueueLocked(v1::WatchRequest message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // After the lock was given up.
  void Flush();
  bool HasNoStreamLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return num_streams_ == 0; }

  EngineClient& engine_;
  asio::steady_timer retry_;
  asio::steady_timer beat_;
  mutable absl::Mutex mu_;
  std::unordered_map<int64_t, Subscriber> subscribers_ ABSL_GUARDED_BY(mu_);
  std::unordered_map<std::string, Watched> watched_ ABSL_GUARDED_BY(mu_);
  // Requests that lost their last subscriber, oldest first; some have another one by now.
  std::deque<Left> left_ ABSL_GUARDED_BY(mu_);
  int64_t next_ticket_ ABSL_GUARDED_BY(mu_) = 1;
  // The latest; it may have ended, and stays until the next or the destructor takes its place. Null
  // before the first.
  std::shared_ptr<WatchStream> stream_ ABSL_GUARDED_BY(mu_);
  // That have not called OnDone.
  int num_streams_ ABSL_GUARDED_BY(mu_) = 0;
  // Of that stream, by SteadyNow.
  std::string address_ ABSL_GUARDED_BY(mu_);
  absl::Time began_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  absl::Time heard_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();  // its last message
  // When the first stream was begun that has not worked since one did.
  absl::Time outage_began_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  // From the first failure to the next success.
  bool is_down_ ABSL_GUARDED_BY(mu_) = false;
  bool is_stopped_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace lathe::gateway
