#include "services/api-gateway/events/event_hub.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "libs/common/errors.h"
#include "libs/common/logging/logging.h"
#include "libs/common/random/random_id.h"
#include "libs/common/time/clock.h"

namespace lathe::gateway {
namespace {

// The timer connects, notices that the engine has changed, and forgets what is old.
constexpr std::chrono::milliseconds kTimerPeriod{200};
constexpr std::chrono::seconds kIdlePeriod{5};
// Pause before the next attempt; the jitter keeps gateways from connecting all at once.
constexpr int64_t kRetryMs = 200;
constexpr int64_t kRetryJitterMs = 400;
// An engine of the release before has no events.
constexpr absl::Duration kUnimplementedPause = absl::Seconds(10);
constexpr absl::Duration kLinger = absl::Seconds(20);
constexpr size_t kMaxLeft = 4096;
// Bytes of all rings from which on they forget sooner.
constexpr size_t kManyBytes = 256 << 20;
constexpr absl::Duration kShortAge = absl::Seconds(3);
// After a restart the engine reads many runs at once, and refuses some for now.
constexpr absl::Duration kAskAgain = absl::Seconds(1);
// A viewer gets more with its next turn.
constexpr size_t kMaxPieceBytes = 64 << 10;
constexpr size_t kBootIdBytes = 6;

std::string EventOf(const std::string& id, std::string_view name, std::string_view data) {
  return absl::StrCat("id: ", id, "\nevent: ", std::string(name), "\ndata: ", std::string(data),
                      "\n\n");
}

absl::Status TooManyViewers(const absl::Status& status) {
  return WithDetail(status, "too_many_viewers");
}

}  // namespace

EventHub::EventHub(asio::any_io_executor executor, EngineClient& engine, const Options& options)
    : engine_(engine),
      options_(options),
      boot_id_(RandomId(kBootIdBytes)),
      timer_(asio::make_strand(executor)) {
  asio::post(timer_.get_executor(), [this] { RunTimer(); });
}

EventHub::~EventHub() {
  Stop();
  absl::MutexLock lock(&mu_);
  mu_.Await(absl::Condition(this, &EventHub::HasNoStreamLocked));
}

void EventHub::Stop() {
  std::shared_ptr<Stream> stream;
  {
    absl::MutexLock lock(&mu_);
    is_stopped_ = true;
    if (num_streams_ > 0) stream = stream_;
  }
  if (stream) stream->Cancel();
  asio::post(timer_.get_executor(), [this] { timer_.cancel(); });
}

void EventHub::EndAll() {
  absl::MutexLock lock(&mu_);
  is_ending_ = true;
  for (Viewer* const viewer : viewers_) {
    if (auto alive = viewer->weak_from_this().lock()) Viewer::PostEnd(std::move(alive));
  }
}

int64_t EventHub::num_viewers() const {
  absl::MutexLock lock(&mu_);
  return static_cast<int64_t>(viewers_.size());
}

std::string EventHub::IdOf(int64_t number) const {
  return absl::StrCat(boot_id_, "-", term_, "-", number);
}

absl::StatusOr<std::shared_ptr<Viewer>> EventHub::Add(const asio::any_io_executor& executor,
                                                      ViewerWish wish) {
  auto viewer = std::make_shared<Viewer>(*this, executor, std::move(wish));
  {
    absl::MutexLock lock(&mu_);
    if (static_cast<int64_t>(viewers_.size()) >= options_.max_viewers) {
      return TooManyViewers(absl::UnavailableError(
          absl::StrFormat("%d clients receive events already, limit is %d; ask again later",
                          viewers_.size(), options_.max_viewers)));
    }
    if (is_ending_) return absl::UnavailableError("the gateway is stopping");
    viewers_.insert(viewer.get());
    SubscribeLocked("", *viewer);
    for (const std::string& run_id : viewer->wish_.run_ids) SubscribeLocked(run_id, *viewer);
    // Makes the timer connect.
    if (num_streams_ == 0) asio::post(timer_.get_executor(), [this] { timer_.cancel(); });
  }
  Flush();
  return viewer;
}

void EventHub::SubscribeLocked(const std::string& run_id, Viewer& viewer) {
  const int64_t subscription_id = ++last_subscription_id_;
  const auto added = subscriptions_.try_emplace(
      subscription_id,
      Subscription{.api_key = viewer.wish_.api_key, .run_id = run_id, .viewer = &viewer});
  viewer.subscriptions_.push_back(subscription_id);
  ++viewer.num_unanswered_;
  SendLocked(subscription_id, added.first->second);
}

void EventHub::SendLocked(int64_t subscription_id, const Subscription& subscription) {
  if (num_streams_ == 0 || !stream_) return;
  v1::EventsRequest message;
  v1::EventsRequest::Subscribe& subscribe = *message.mutable_subscribe();
  subscribe.set_subscription_id(subscription_id);
  subscribe.set_api_key(subscription.api_key);
  subscribe.set_training_run_id(subscription.run_id);
  stream_->Enqueue(std::move(message));
}

void EventHub::Flush() {
  std::shared_ptr<Stream> stream;
  {
    absl::MutexLock lock(&mu_);
    if (num_streams_ > 0) stream = stream_;
  }
  if (stream) stream->Flush();
}

void EventHub::Remove(Viewer& viewer) {
  absl::MutexLock lock(&mu_);
  if (viewers_.erase(&viewer) == 0) return;
  for (const int64_t feed_id : viewer.feeds_) {
    const auto feed = feeds_.find(feed_id);
    if (feed != feeds_.end()) feed->second.viewers.erase(&viewer);
  }
  for (const int64_t subscription_id : viewer.subscriptions_) {
    const auto found = subscriptions_.find(subscription_id);
    if (found == subscriptions_.end()) continue;
    found->second.viewer = nullptr;
    left_.push_back({.at = SteadyNow(), .subscription_id = subscription_id});
  }
}

void EventHub::ForgetLeftLocked(absl::Time now) {
  while (!left_.empty() && (left_.size() > kMaxLeft || now - left_.front().at > kLinger)) {
    UnsubscribeLocked(left_.front().subscription_id);
    left_.pop_front();
  }
}

void EventHub::UnsubscribeLocked(int64_t subscription_id) {
  const auto found = subscriptions_.find(subscription_id);
  if (found == subscriptions_.end()) return;
  const auto feed = feeds_.find(found->second.feed_id);
  if (feed != feeds_.end() && --feed->second.num_subscriptions == 0) feeds_.erase(feed);
  if (found->second.asks_again_at != absl::InfiniteFuture()) --num_refused_;
  subscriptions_.erase(found);
  if (num_streams_ == 0 || !stream_) return;
  v1::EventsRequest message;
  message.set_unsubscribe(subscription_id);
  stream_->Enqueue(std::move(message));
}

std::optional<absl::Status> EventHub::AnswerTo(Viewer& viewer) {
  absl::MutexLock lock(&mu_);
  viewer.is_woken_ = false;
  if (!viewer.refusal_.ok()) return viewer.refusal_;
  if (viewer.has_joined_) return absl::OkStatus();
  if (!stream_error_.ok()) return stream_error_;
  return std::nullopt;
}

bool EventHub::HasAllLocked(const Viewer& viewer, int64_t number) const {
  return std::ranges::all_of(viewer.feeds_, [this, number](int64_t feed_id) {
    const auto feed = feeds_.find(feed_id);
    return feed != feeds_.end() && feed->second.ring.HasAllAfter(number);
  });
}

absl::StatusOr<std::string> EventHub::Take(Viewer& viewer) {
  absl::MutexLock lock(&mu_);
  viewer.is_woken_ = false;
  if (!viewer.refusal_.ok()) return viewer.refusal_;
  if (viewer.num_unanswered_ == 0 && !HasAllLocked(viewer, viewer.place_)) {
    ResyncLocked(viewer, "too_slow");
  }
  std::string text = std::exchange(viewer.notices_, {});
  while (text.size() < kMaxPieceBytes) {
    const NumberedEvent* next = nullptr;
    for (const int64_t feed_id : viewer.feeds_) {
      const auto feed = feeds_.find(feed_id);
      if (feed == feeds_.end()) continue;
      const NumberedEvent* const first = feed->second.ring.After(viewer.place_);
      if (first != nullptr && (next == nullptr || first->number < next->number)) next = first;
    }
    if (next == nullptr) {
      viewer.place_ = last_number_;
      viewer.has_pending_ = false;
      break;
    }
    viewer.place_ = next->number;
    if ((viewer.wish_.topics & static_cast<unsigned>(next->topic)) != 0) text += *next->text;
  }
  return text;
}

void EventHub::ResyncLocked(Viewer& viewer, const char* reason) {
  viewer.place_ = last_number_;
  viewer.notices_ =
      EventOf(IdOf(last_number_), "resync", absl::StrCat("{\"reason\":\"", reason, "\"}"));
}

void EventHub::WakeLocked(Viewer& viewer) {
  if (viewer.is_woken_) return;
  std::shared_ptr<Viewer> alive = viewer.weak_from_this().lock();
  if (!alive) return;  // it is being destroyed
  viewer.is_woken_ = true;
  Viewer::PostWake(std::move(alive));
}

void EventHub::RunTimer() {
  std::shared_ptr<Stream> stale;
  bool is_due = false;
  bool is_idle = false;
  {
    absl::MutexLock lock(&mu_);
    if (is_stopped_) return;
    const absl::Time now = SteadyNow();
    ForgetLeftLocked(now);
    AgeRingsLocked(now);
    AskAgainLocked(now);
    // Another engine leads now.
    if (num_streams_ > 0 && address_ != engine_.current_address()) stale = stream_;
    is_idle = subscriptions_.empty();
    is_due = num_streams_ == 0 && !viewers_.empty() && now >= next_attempt_;
  }
  if (stale) stale->Cancel();
  if (is_due) Connect();
  Flush();
  timer_.expires_after(is_idle ? std::chrono::milliseconds(kIdlePeriod) : kTimerPeriod);
  timer_.async_wait([this](boost::system::error_code) { RunTimer(); });
}

void EventHub::AgeRingsLocked(absl::Time now) {
  size_t num_bytes = 0;
  for (const auto& [id, feed] : feeds_) num_bytes += feed.ring.num_bytes();
  const absl::Duration max_age = num_bytes > kManyBytes ? kShortAge : EventRing::kMaxAge;
  for (auto& [id, feed] : feeds_) feed.ring.Age(now, max_age);
}

void EventHub::AskAgainLocked(absl::Time now) {
  if (num_refused_ == 0) return;
  for (auto& [id, subscription] : subscriptions_) {
    if (subscription.asks_again_at > now) continue;
    subscription.asks_again_at = absl::InfiniteFuture();
    --num_refused_;
    SendLocked(id, subscription);
  }
}

void EventHub::Connect() {
  {
    absl::MutexLock lock(&mu_);
    if (is_stopped_) return;
    ++num_streams_;
  }
  const std::string address = engine_.current_address();
  // The stream has a connection of its own, as that of WatchClient.
  const std::shared_ptr<Stream> stream = Stream::Start(
      engine_, engine_.dialer().Dial(address), &v1::Events::StubInterface::async_interface::Stream,
      {.on_connected = [] {},
       .on_response = [this](const v1::EventsResponse& response) { OnResponse(response); },
       .on_done = [this, address](const grpc::Status& status) { OnDone(address, status); }});
  std::shared_ptr<Stream> ended = stream;
  absl::MutexLock lock(&mu_);
  stream_.swap(ended);
  address_ = address;
  if (is_stopped_) stream->Cancel();
  for (const auto& [id, subscription] : subscriptions_) SendLocked(id, subscription);
}

void EventHub::OnDone(const std::string& address, const grpc::Status& status) {
  const bool is_unknown = status.error_code() == grpc::StatusCode::UNIMPLEMENTED;
  absl::MutexLock lock(&mu_);
  if (!feeds_.empty() && !is_stopped_) {
    LogWarn("event stream ended", {{"address", address}, {"error", status.error_message()}});
  }
  stream_error_ =
      is_unknown ? absl::UnavailableError("this engine sends no events") : absl::OkStatus();
  outage_ = "engine_unreachable";
  const auto jitter = static_cast<int64_t>(RandomUint64() % kRetryJitterMs);
  next_attempt_ =
      SteadyNow() + (is_unknown ? kUnimplementedPause : absl::Milliseconds(kRetryMs + jitter));
  feeds_.clear();
  for (const Left& left : left_) subscriptions_.erase(left.subscription_id);
  left_.clear();
  for (auto& [id, subscription] : subscriptions_) {
    subscription.feed_id = 0;
    subscription.asks_again_at = absl::InfiniteFuture();
  }
  num_refused_ = 0;
  for (Viewer* const viewer : viewers_) {
    if (viewer->has_joined_ && viewer->num_unanswered_ == 0) {
      viewer->notices_ = EventOf(IdOf(last_number_), "engine", "{\"is_reachable\":false}");
    }
    viewer->feeds_.clear();
    viewer->num_unanswered_ = static_cast<int64_t>(viewer->subscriptions_.size());
    WakeLocked(*viewer);
  }
  --num_streams_;  // the destructor may continue after this
}

void EventHub::OnResponse(const v1::EventsResponse& response) {
  absl::MutexLock lock(&mu_);
  switch (response.event_case()) {
    case v1::EventsResponse::kSubscribed:
      return OnSubscribedLocked(response.subscribed());
    case v1::EventsResponse::kRefused:
      return OnRefusedLocked(response.refused());
    case v1::EventsResponse::kEventOfFeed:
      return OnEventLocked(response.event_of_feed());
    case v1::EventsResponse::EVENT_NOT_SET:
      return;
  }
}

void EventHub::OnSubscribedLocked(const v1::EventsSubscribed& subscribed) {
  if (term_ != 0 && term_ != subscribed.term()) outage_ = "engine_restarted";
  term_ = subscribed.term();
  stream_error_ = absl::OkStatus();
  const auto found = subscriptions_.find(subscribed.subscription_id());
  if (found == subscriptions_.end()) return;
  Subscription& subscription = found->second;
  subscription.feed_id = subscribed.feed_id();
  Feed& feed =
      feeds_.try_emplace(subscribed.feed_id(), Feed{.ring = EventRing(last_number_)}).first->second;
  ++feed.num_subscriptions;
  feed.is_of_tenant = subscription.run_id.empty();
  if (subscription.viewer == nullptr) return;
  Viewer& viewer = *subscription.viewer;
  viewer.feeds_.push_back(subscribed.feed_id());
  feed.viewers.insert(&viewer);
  // The feed without a run is that of the tenant.
  const auto num_viewers = static_cast<int64_t>(feed.viewers.size());
  if (subscription.run_id.empty() && num_viewers > options_.max_viewers_per_tenant) {
    feed.viewers.erase(&viewer);
    viewer.refusal_ = TooManyViewers(absl::ResourceExhaustedError(
        absl::StrFormat("%d clients of this tenant receive events already, limit is %d; close one",
                        num_viewers - 1, options_.max_viewers_per_tenant)));
  }
  if (--viewer.num_unanswered_ == 0) OnJoinedLocked(viewer);
  WakeLocked(viewer);
}

void EventHub::OnJoinedLocked(Viewer& viewer) {
  if (std::exchange(viewer.has_joined_, true)) return ResyncLocked(viewer, outage_.c_str());
  viewer.place_ = last_number_;
  const std::vector<std::string> parts = absl::StrSplit(viewer.wish_.last_event_id, '-');
  int64_t number = 0;
  if (viewer.wish_.last_event_id.empty()) {
    viewer.notices_ = EventOf(IdOf(last_number_), "ready", "{}");
  } else if (parts.size() != 3 || parts[0] != boot_id_) {
    const bool is_same_engine = parts.size() == 3 && parts[1] == absl::StrCat(term_);
    ResyncLocked(viewer, is_same_engine ? "gateway_restarted" : "engine_restarted");
  } else if (!absl::SimpleAtoi(parts[2], &number) || number > last_number_ ||
             !HasAllLocked(viewer, number)) {
    ResyncLocked(viewer, parts[1] == absl::StrCat(term_) ? "too_late" : "engine_restarted");
  } else {
    viewer.place_ = number;
    viewer.notices_ = EventOf(IdOf(number), "ready", "{}");
  }
}

void EventHub::OnRefusedLocked(const v1::EventsRefused& refused) {
  const auto found = subscriptions_.find(refused.subscription_id());
  if (found == subscriptions_.end()) return;
  const auto code = static_cast<absl::StatusCode>(refused.grpc_status());
  if (code == absl::StatusCode::kResourceExhausted || code == absl::StatusCode::kUnavailable) {
    found->second.asks_again_at = SteadyNow() + kAskAgain;
    ++num_refused_;
    return;
  }
  Viewer* const viewer = found->second.viewer;
  const auto feed = feeds_.find(found->second.feed_id);
  if (feed != feeds_.end() && --feed->second.num_subscriptions == 0) feeds_.erase(feed);
  subscriptions_.erase(found);
  stream_error_ = absl::OkStatus();
  if (viewer == nullptr) return;
  const v1::Error& error = refused.error();
  const absl::Status status(code, error.message());
  viewer->refusal_ = EngineClient::ForClient(WithDetail(status, error.code(), error.field()));
  WakeLocked(*viewer);
}

void EventHub::OnEventLocked(const v1::FeedEvent& event) {
  const bool is_for_all = event.feed_id() == 0;
  const auto found = feeds_.find(event.feed_id());
  if (!is_for_all && found == feeds_.end()) return;
  const EventTopic topic = TopicOf(event);
  ++last_number_;
  const auto text = std::make_shared<const std::string>(
      EventOf(IdOf(last_number_), NameOf(topic), EventData(event)));
  if (!is_for_all) return AddToFeedLocked(found->second, topic, text);
  for (auto& [id, feed] : feeds_) {
    if (feed.is_of_tenant) AddToFeedLocked(feed, topic, text);
  }
}

void EventHub::AddToFeedLocked(Feed& feed, EventTopic topic, const EventText& text) {
  feed.ring.Add({.number = last_number_, .topic = topic, .text = text, .at = SteadyNow()});
  for (Viewer* const viewer : feed.viewers) {
    if ((viewer->wish_.topics & static_cast<unsigned>(topic)) != 0) {
      viewer->has_pending_ = true;
      WakeLocked(*viewer);
    } else if (!viewer->has_pending_) {
      // It must not fall behind for what it does not want.
      viewer->place_ = last_number_;
    }
  }
}

}  // namespace lathe::gateway
