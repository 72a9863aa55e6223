#include "services/api-gateway/engine_client/watch_client.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>
#include <chrono>
#include <utility>

#include "libs/common/logging/logging.h"
#include "libs/common/random/random_id.h"
#include "libs/common/time/clock.h"

namespace lathe::gateway {
namespace {

// Pause between attempts. The jitter keeps gateways from connecting to an engine all at once.
constexpr int64_t kMinRetryMs = 50;
constexpr int64_t kRetryJitterMs = 250;

// gRPC's callback threads (two, in 1.51) sleep for 100 ms after a second without work, even if work
// arrives. The first call after a silence would wait for that. A more frequent write keeps one of
// these threads awake, here and in the engine.
constexpr std::chrono::milliseconds kHeartbeatPeriod{400};
// The engine answers every heartbeat. An engine that is silent for this long is considered hung.
constexpr absl::Duration kSilenceLimit = absl::Seconds(6);
// Before a stream's first message the limit is a quarter of the outage so far, but at least this. A
// hung engine then costs little time during the search for the leader.
constexpr absl::Duration kMinFirstAnswer = absl::Milliseconds(500);

// Time for which a request without subscribers stays subscribed.
constexpr absl::Duration kLinger = absl::Seconds(2);

v1::WatchRequest SubscribeMessage(const std::string& request_id, const std::string& api_key) {
  v1::WatchRequest message;
  message.mutable_subscribe()->set_request_id(request_id);
  message.mutable_subscribe()->set_api_key(api_key);
  return message;
}

WatchUpdate ToUpdate(const v1::WatchResponse& response) {
  WatchUpdate update;
  update.is_done = response.done();
  if (response.has_error()) update.error = FromErrorProto(response.error());
  if (!response.encoded_result().empty()) {
    auto result = std::make_shared<v1::OperationResult>();
    if (result->ParseFromString(response.encoded_result())) update.result = std::move(result);
  }
  update.queue_state = response.queue_state();
  update.queue_state_reason = response.queue_state_reason();
  return update;
}

}  // namespace

WatchClient::WatchClient(asio::any_io_executor executor, EngineClient& engine,
                         absl::Duration outage_grace)
    : engine_(engine),
      outage_grace_(outage_grace),
      retry_(asio::make_strand(executor)),
      heartbeat_timer_(retry_.get_executor()) {
  // Connects on the strand, so that a stream that ends at once is recorded before the next one
  // replaces it.
  asio::post(retry_.get_executor(), [this] {
    Connect();
    ScheduleHeartbeats();
  });
}

WatchClient::~WatchClient() {
  Stop();
  absl::MutexLock lock(&mu_);
  mu_.Await(absl::Condition(this, &WatchClient::HasNoStreamLocked));
}

void WatchClient::Stop() {
  std::shared_ptr<WatchStream> stream;
  {
    absl::MutexLock lock(&mu_);
    is_stopped_ = true;
    stream = stream_;
  }
  if (stream) stream->Cancel();
  // Cancels on the timers' strand, where no new wait begins once is_stopped_ is set.
  asio::post(retry_.get_executor(), [this] {
    retry_.cancel();
    heartbeat_timer_.cancel();
  });
}

int64_t WatchClient::Subscribe(const std::string& request_id, const std::string& api_key,
                               Callback callback) {
  int64_t ticket = 0;
  {
    absl::MutexLock lock(&mu_);
    ticket = next_ticket_++;
    subscribers_[ticket] = {request_id, api_key, std::move(callback)};
    const auto [found, is_new] = watched_.try_emplace(request_id);
    Watched& watched = found->second;
    const bool is_subscribed = !watched.tickets.empty() || (!is_new && watched.api_key == api_key);
    watched.tickets.insert(ticket);
    if (is_subscribed) return ticket;
    watched.api_key = api_key;
    EnqueueLocked(SubscribeMessage(request_id, api_key));
  }
  Flush();
  return ticket;
}

void WatchClient::Unsubscribe(int64_t ticket) {
  {
    absl::MutexLock lock(&mu_);
    const auto subscriber = subscribers_.find(ticket);
    if (subscriber == subscribers_.end()) return;
    const std::string request_id = std::move(subscriber->second.request_id);
    subscribers_.erase(subscriber);
    const auto watched = watched_.find(request_id);
    watched->second.tickets.erase(ticket);
    if (!watched->second.tickets.empty()) return;
    watched->second.left_at = SteadyNow();
    left_.push_back({watched->second.left_at, request_id});
  }
}

void WatchClient::ForgetLeft() {
  absl::MutexLock lock(&mu_);
  const absl::Time before = SteadyNow() - kLinger;
  while (!left_.empty() && left_.front().at <= before) {
    const Left left = std::move(left_.front());
    left_.pop_front();
    const auto watched = watched_.find(left.request_id);
    if (watched == watched_.end() || !watched->second.tickets.empty()) continue;
    if (watched->second.left_at != left.at) continue;  // a subscriber came and left meanwhile
    watched_.erase(watched);
    v1::WatchRequest message;
    message.set_unsubscribe(left.request_id);
    EnqueueLocked(std::move(message));
  }
}

void WatchClient::AskAgain(int64_t ticket) {
  {
    absl::MutexLock lock(&mu_);
    const auto subscriber = subscribers_.find(ticket);
    if (subscriber == subscribers_.end()) return;
    const std::string& request_id = subscriber->second.request_id;
    EnqueueLocked(SubscribeMessage(request_id, watched_.at(request_id).api_key));
  }
  Flush();
}

void WatchClient::Acknowledge(const std::string& request_id, const std::string& api_key) {
  v1::WatchRequest message;
  message.mutable_delivered()->set_request_id(request_id);
  message.mutable_delivered()->set_api_key(api_key);
  {
    absl::MutexLock lock(&mu_);
    EnqueueLocked(std::move(message));
  }
  Flush();
}

void WatchClient::EnqueueLocked(v1::WatchRequest message) {
  if (stream_) stream_->Enqueue(std::move(message));
}

void WatchClient::Flush() {
  std::shared_ptr<WatchStream> stream;
  {
    absl::MutexLock lock(&mu_);
    stream = stream_;
  }
  if (stream) stream->Flush();
}

bool WatchClient::IsWatchedByOther(const std::string& request_id,
                                   const std::string& api_key) const {
  absl::MutexLock lock(&mu_);
  const auto watched = watched_.find(request_id);
  return watched != watched_.end() && !watched->second.tickets.empty() &&
         watched->second.api_key != api_key;
}

bool WatchClient::is_connected() const {
  absl::MutexLock lock(&mu_);
  return !is_down_;
}

bool WatchClient::is_available() const {
  absl::MutexLock lock(&mu_);
  return !is_down_ || SteadyNow() - down_since_ < outage_grace_;
}

int64_t WatchClient::num_subscriptions() const {
  absl::MutexLock lock(&mu_);
  return static_cast<int64_t>(subscribers_.size());
}

void WatchClient::Connect() {
  {
    absl::MutexLock lock(&mu_);
    if (is_stopped_) return;
    ++num_streams_;
  }
  const std::string address = engine_.current_address();
  engine_.ReadSecret();
  // The stream has a connection of its own, so that updates do not wait behind large results.
  const std::shared_ptr<WatchStream> stream = WatchStream::Start(
      engine_, engine_.dialer().Dial(address), &EngineClient::AsyncStub::Watch,
      {[this] { OnConnected(); },
       [this](const v1::WatchResponse& response) { OnResponse(response); },
       [this, address](const grpc::Status& status) { OnDone(address, status); }});
  std::shared_ptr<WatchStream> ended = stream;
  {
    absl::MutexLock lock(&mu_);
    stream_.swap(ended);
    address_ = address;
    began_ = SteadyNow();
    outage_began_ = std::min(outage_began_, began_);
    heard_ = absl::InfinitePast();
    if (is_stopped_) stream->Cancel();
    // An empty message. The engine's response shows that it is reachable even if no request is
    // watched.
    EnqueueLocked(v1::WatchRequest());
    for (const auto& [request_id, watched] : watched_) {
      EnqueueLocked(SubscribeMessage(request_id, watched.api_key));
    }
  }
  stream->Flush();
}

void WatchClient::ScheduleConnect() {
  asio::post(retry_.get_executor(), [this] {
    {
      absl::MutexLock lock(&mu_);
      if (is_stopped_) return;
    }
    const auto jitter = static_cast<int64_t>(RandomUint64() % kRetryJitterMs);
    retry_.expires_after(std::chrono::milliseconds(kMinRetryMs + jitter));
    retry_.async_wait([this](boost::system::error_code error) {
      if (!error) Connect();
    });
  });
}

void WatchClient::ScheduleHeartbeats() {
  std::shared_ptr<WatchStream> stream;
  {
    absl::MutexLock lock(&mu_);
    if (is_stopped_) return;
    stream = stream_;
  }
  LeaveSilentEngine();
  ForgetLeft();
  if (stream) stream->SendHeartbeat();
  heartbeat_timer_.expires_after(kHeartbeatPeriod);
  heartbeat_timer_.async_wait([this](boost::system::error_code error) {
    if (!error) ScheduleHeartbeats();
  });
}

bool WatchClient::IsSilentLocked() const {
  const absl::Time now = SteadyNow();
  if (heard_ != absl::InfinitePast()) return now - heard_ > kSilenceLimit;
  return now - began_ > std::clamp((began_ - outage_began_) / 4, kMinFirstAnswer, kSilenceLimit);
}

void WatchClient::LeaveSilentEngine() {
  if (engine_.num_addresses() == 1) return;
  std::shared_ptr<WatchStream> stream;
  std::string address;
  {
    absl::MutexLock lock(&mu_);
    if (!stream_ || num_streams_ == 0 || !IsSilentLocked()) return;
    stream = stream_;
    address = address_;
    began_ = absl::InfiniteFuture();  // abandons it only once
    heard_ = absl::InfinitePast();
  }
  LogWarn("engine is silent", {{"address", address}});
  engine_.Abandon(address);
  stream->Cancel();
}

void WatchClient::OnConnected() {
  bool was_down = false;
  {
    absl::MutexLock lock(&mu_);
    was_down = std::exchange(is_down_, false);
    was_up_ = true;
    outage_began_ = absl::InfiniteFuture();
  }
  if (was_down) LogInfo("watch stream is up again");
}

void WatchClient::OnDone(const std::string& address, const grpc::Status& status) {
  bool was_down = false;
  bool is_stopped = false;
  bool has_answered = false;
  {
    absl::MutexLock lock(&mu_);
    was_down = std::exchange(is_down_, true);
    if (!was_down && was_up_) down_since_ = SteadyNow();
    is_stopped = is_stopped_;
    has_answered = heard_ != absl::InfinitePast();
  }
  // An engine that hangs accepts connections and calls but answers none. Calls sent to it during
  // this attempt would wait until their deadline, so Abandon ends them.
  if (!has_answered && !is_stopped && engine_.num_addresses() > 1) {
    engine_.Abandon(address);
  } else {
    engine_.ReportUnavailable(address);
  }
  if (!was_down && !is_stopped) LogWarn("watch stream ended", {{"error", status.error_message()}});
  ScheduleConnect();
  absl::MutexLock lock(&mu_);
  --num_streams_;  // the destructor may continue after this
}

void WatchClient::OnResponse(const v1::WatchResponse& response) {
  std::vector<Addressee> addressees;
  {
    absl::MutexLock lock(&mu_);
    heard_ = SteadyNow();
    addressees = TakeAddresseesLocked(response);
  }
  const WatchUpdate update = ToUpdate(response);
  WatchUpdate without_result = update;
  without_result.result = nullptr;
  for (const auto& [callback, may_see_result] : addressees) {
    callback(may_see_result ? update : without_result);
  }
  Flush();
}

std::vector<WatchClient::Addressee> WatchClient::TakeAddresseesLocked(
    const v1::WatchResponse& response) {
  std::vector<Addressee> addressees;
  const auto found = watched_.find(response.request_id());
  if (found == watched_.end()) return addressees;
  Watched& watched = found->second;
  const bool is_final = response.done() || response.has_error();
  std::set<int64_t> staying;
  for (const int64_t ticket : watched.tickets) {
    const Subscriber& subscriber = subscribers_[ticket];
    // An error concerns only the subscribed key. Subscribers with other keys stay and are checked
    // below.
    const bool has_checked_key = subscriber.api_key == watched.api_key;
    const bool is_addressed = !response.has_error() || has_checked_key;
    if (is_addressed) addressees.push_back({subscriber.callback, has_checked_key});
    if (is_addressed && is_final) {
      subscribers_.erase(ticket);
    } else {
      staying.insert(ticket);
    }
  }
  watched.tickets = std::move(staying);
  if (watched.tickets.empty()) {
    if (is_final) watched_.erase(found);
  } else if (response.has_error()) {
    watched.api_key = subscribers_[*watched.tickets.begin()].api_key;
    EnqueueLocked(SubscribeMessage(response.request_id(), watched.api_key));
  }
  return addressees;
}

}  // namespace lathe::gateway
