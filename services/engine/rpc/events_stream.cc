#include "services/engine/rpc/events_stream.h"

#include <map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "libs/common/rpc/status.h"
#include "services/engine/rpc/authenticated_call.h"

namespace lathe::engine {
namespace {

size_t BytesOf(const v1::EventsResponse& response) {
  return sizeof(response) + response.ByteSizeLong();
}

v1::EventsResponse Refusal(int64_t subscription_id, const absl::Status& status) {
  v1::EventsResponse response;
  v1::EventsRefused& refused = *response.mutable_refused();
  refused.set_subscription_id(subscription_id);
  *refused.mutable_error() = ToErrorProto(status);
  refused.set_grpc_status(static_cast<int32_t>(status.code()));
  return response;
}

}  // namespace

EventsStream* EventsStream::Start(EventFeeds& feeds, const KeyRing& keys, int64_t term,
                                  const grpc::CallbackServerContext& context) {
  std::shared_ptr<EventsStream> stream(new EventsStream(feeds, keys, term));
  stream->self_ = stream;
  if (const absl::Status status = CheckPeer(keys, context); !status.ok()) {
    stream->End(status);
    return stream.get();
  }
  feeds.AddStream(stream);
  stream->StartRead(&stream->request_);
  return stream.get();
}

void EventsStream::Push(const v1::EventsResponse& response) {
  absl::MutexLock lock(&mu_);
  v1::EventsResponse event = response;
  if (outgoing_bytes_ > kManyOutgoingBytes && event.event_of_feed().has_points()) {
    v1::RunPoints& points = *event.mutable_event_of_feed()->mutable_points();
    points.clear_series();
    points.set_is_incomplete(true);
  }
  WriteLocked(std::move(event));
}

void EventsStream::OnReadDone(bool ok) {
  if (!ok) {
    absl::MutexLock lock(&mu_);
    is_half_closed_ = true;
    return EndIfIdleLocked();
  }
  if (request_.has_subscribe()) Subscribe(request_.subscribe());
  if (request_.action_case() == v1::EventsRequest::kUnsubscribe) {
    Unsubscribe(request_.unsubscribe());
  }
  request_.Clear();
  absl::MutexLock lock(&mu_);
  if (!ended_) StartRead(&request_);
}

void EventsStream::Subscribe(const v1::EventsRequest::Subscribe& subscribe) {
  const int64_t subscription_id = subscribe.subscription_id();
  const absl::StatusOr<Caller> caller =
      AuthenticateMessage(keys_, subscribe.api_key(), Scope::kRead);
  if (!caller.ok()) return Refuse(subscription_id, caller.status());
  {
    absl::MutexLock lock(&mu_);
    const bool is_full = subscriptions_.size() >= kMaxSubscriptions;
    if (is_full || !subscriptions_.try_emplace(subscription_id).second) {
      return WriteLocked(Refusal(
          subscription_id, is_full ? absl::ResourceExhaustedError("too many subscriptions")
                                   : absl::InvalidArgumentError("the subscription id is taken")));
    }
    Subscription& subscription = subscriptions_[subscription_id];
    subscription.api_key = subscribe.api_key();
    subscription.tenant_id = caller->tenant_id;
  }
  feeds_.Join(caller->tenant_id, subscribe.training_run_id(), shared_from_this(),
              [weak = weak_from_this(), subscription_id](const absl::StatusOr<int64_t>& feed_id) {
                const std::shared_ptr<EventsStream> stream = weak.lock();
                return stream && stream->OnJoined(subscription_id, feed_id);
              });
}

bool EventsStream::OnJoined(int64_t subscription_id, const absl::StatusOr<int64_t>& feed_id) {
  if (!feed_id.ok()) {
    Refuse(subscription_id, feed_id.status());
    return false;
  }
  absl::MutexLock lock(&mu_);
  const auto found = subscriptions_.find(subscription_id);
  if (found == subscriptions_.end() || ended_) return false;
  found->second.feed_id = *feed_id;
  v1::EventsResponse response;
  response.mutable_subscribed()->set_subscription_id(subscription_id);
  response.mutable_subscribed()->set_feed_id(*feed_id);
  response.mutable_subscribed()->set_term(term_);
  WriteLocked(std::move(response));
  EndIfIdleLocked();
  return true;
}

void EventsStream::Unsubscribe(int64_t subscription_id) {
  int64_t feed_id = 0;
  {
    absl::MutexLock lock(&mu_);
    const auto found = subscriptions_.find(subscription_id);
    if (found == subscriptions_.end()) return;
    feed_id = found->second.feed_id;
    subscriptions_.erase(found);
  }
  if (feed_id != 0) feeds_.Leave(feed_id, this);
}

void EventsStream::CheckKeys() {
  struct Checked {
    int64_t id;
    std::string credential;
    std::string tenant_id;
  };
  std::vector<Checked> all;
  {
    absl::MutexLock lock(&mu_);
    for (const auto& [id, subscription] : subscriptions_) {
      all.push_back({id, subscription.api_key, subscription.tenant_id});
    }
  }
  std::map<std::string, absl::StatusOr<Caller>> callers;
  for (const auto& [id, credential, tenant_id] : all) {
    auto found = callers.find(credential);
    if (found == callers.end()) {
      absl::StatusOr<Caller> caller = AuthenticateMessage(keys_, credential, Scope::kRead);
      found = callers.emplace(credential, std::move(caller)).first;
    }
    absl::Status status = found->second.status();
    // A user may have come to another tenant since.
    if (status.ok() && found->second->tenant_id != tenant_id) {
      status = absl::UnauthenticatedError("the session is of another tenant now");
    }
    if (status.ok()) continue;
    Unsubscribe(id);
    Refuse(id, status);
  }
}

void EventsStream::Refuse(int64_t subscription_id, const absl::Status& status) {
  absl::MutexLock lock(&mu_);
  subscriptions_.erase(subscription_id);
  WriteLocked(Refusal(subscription_id, status));
  EndIfIdleLocked();
}

void EventsStream::EndIfIdleLocked() {
  if (!is_half_closed_ || ended_) return;
  for (const auto& [id, subscription] : subscriptions_) {
    if (subscription.feed_id == 0) return;
  }
  ended_ = true;
  Finish(grpc::Status::OK);
}

void EventsStream::Write(v1::EventsResponse response) {
  absl::MutexLock lock(&mu_);
  WriteLocked(std::move(response));
}

void EventsStream::WriteLocked(v1::EventsResponse response) {
  if (ended_) return;
  outgoing_bytes_ += BytesOf(response);
  if (outgoing_bytes_ > kMaxOutgoingBytes) {
    ended_ = true;
    return Finish(ToGrpcStatus(absl::ResourceExhaustedError("the gateway reads too slowly")));
  }
  if (const v1::EventsResponse* next = outgoing_.Add(std::move(response))) StartWrite(next);
}

void EventsStream::OnWriteDone(bool ok) {
  if (!ok) return End(absl::CancelledError("the stream broke"));
  absl::MutexLock lock(&mu_);
  outgoing_bytes_ -= BytesOf(outgoing_.front());
  const v1::EventsResponse* next = outgoing_.Written();
  if (next != nullptr && !ended_) StartWrite(next, outgoing_.options());
}

void EventsStream::EndStream() { End(absl::UnavailableError("the engine is stopping")); }

void EventsStream::OnCancel() { End(absl::CancelledError("the gateway left")); }

void EventsStream::End(const absl::Status& status) {
  {
    absl::MutexLock lock(&mu_);
    if (std::exchange(ended_, true)) return;
  }
  Finish(ToGrpcStatus(status));
}

void EventsStream::OnDone() {
  feeds_.RemoveStream(this);
  std::map<int64_t, Subscription> subscriptions;
  {
    absl::MutexLock lock(&mu_);
    subscriptions.swap(subscriptions_);
  }
  for (const auto& [id, subscription] : subscriptions) {
    if (subscription.feed_id != 0) feeds_.Leave(subscription.feed_id, this);
  }
  self_.reset();
}

}  // namespace lathe::engine
