// One stream of events to a gateway: the subscriptions of its viewers.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "protos/lathe/v1/events.grpc.pb.h"
#include "services/engine/auth/key_ring.h"
#include "services/engine/rpc/event_feeds.h"
#include "services/engine/rpc/outgoing_messages.h"

namespace lathe::engine {

// Keeps itself alive until gRPC is done with it. Thread-safe.
class EventsStream final : public grpc::ServerBidiReactor<v1::EventsRequest, v1::EventsResponse>,
                           public EventSink,
                           public std::enable_shared_from_this<EventsStream> {
 public:
  // Upper bound of a stream's subscriptions. Further ones are refused with ResourceExhausted.
  static constexpr size_t kMaxSubscriptions = 65536;
  // While more bytes wait, events say that points are missing instead of naming them.
  static constexpr size_t kManyOutgoingBytes = 4 << 20;
  // A stream for which more bytes wait ends. Its gateway connects again, and its viewers read
  // everything again.
  static constexpr size_t kMaxOutgoingBytes = 8 << 20;

  // The first three must outlive the stream.
  static EventsStream* Start(EventFeeds& feeds, const KeyRing& keys, int64_t term,
                             const grpc::CallbackServerContext& context);

  void Push(const v1::EventsResponse& response) override;
  void CheckKeys() override;
  void EndStream() override;

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  struct Subscription {
    std::string api_key;
    std::string tenant_id;  // of the credential's owner, when the subscription began
    int64_t feed_id = 0;    // 0: not known yet
  };

  EventsStream(EventFeeds& feeds, const KeyRing& keys, int64_t term)
      : feeds_(feeds), keys_(keys), term_(term) {}

  void Subscribe(const v1::EventsRequest::Subscribe& subscribe);
  void Unsubscribe(int64_t subscription_id);
  bool OnJoined(int64_t subscription_id, const absl::StatusOr<int64_t>& feed_id);
  void Refuse(int64_t subscription_id, const absl::Status& status);
  void Write(v1::EventsResponse response) ABSL_LOCKS_EXCLUDED(mu_);
  void WriteLocked(v1::EventsResponse response) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Ends a stream whose peer sends nothing more once each subscription is answered.
  void EndIfIdleLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void End(const absl::Status& status);

  EventFeeds& feeds_;
  const KeyRing& keys_;
  const int64_t term_;
  v1::EventsRequest request_;  // being read
  std::shared_ptr<EventsStream> self_;

  absl::Mutex mu_;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  bool is_half_closed_ ABSL_GUARDED_BY(mu_) = false;
  OutgoingMessages<v1::EventsResponse> outgoing_ ABSL_GUARDED_BY(mu_);
  size_t outgoing_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<int64_t, Subscription> subscriptions_ ABSL_GUARDED_BY(mu_);
};

// lathe.v1.Events. The arguments must outlive it and its server.
class EventsService final : public v1::Events::CallbackService {
 public:
  EventsService(Runtime& runtime, const KeyRing& keys, ReadThreads& reads,
                AdminService::AttachedGroups attached_groups)
      : runtime_(runtime), keys_(keys), feeds_(runtime, reads, std::move(attached_groups)) {}

  grpc::ServerBidiReactor<v1::EventsRequest, v1::EventsResponse>* Stream(
      grpc::CallbackServerContext* context) override {
    return EventsStream::Start(feeds_, keys_, runtime_.term(), *context);
  }
  // Ends all streams, so that a server can shut down.
  void EndStreams() { feeds_.EndStreams(); }

 private:
  Runtime& runtime_;
  const KeyRing& keys_;
  EventFeeds feeds_;
};

}  // namespace lathe::engine
