#include "services/engine/rpc/watch_stream.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "libs/common/logging/logging.h"
#include "libs/common/protocol.h"
#include "libs/common/rpc/status.h"
#include "libs/common/version.h"
#include "services/engine/rpc/authenticated_call.h"

namespace lathe::engine {
namespace {

// Memory of a waiting message.
size_t BytesOf(const v1::WatchResponse& response) {
  return sizeof(response) + response.ByteSizeLong();
}

// Clients that call through a gateway name no protocol. They use the public API, which stays
// compatible.
absl::Status CheckGatewayProtocol(const grpc::CallbackServerContext& context) {
  const auto header = context.client_metadata().find(kProtocolHeader);
  if (header == context.client_metadata().end()) return absl::OkStatus();
  const std::string text(header->second.data(), header->second.size());
  const std::optional<ProtocolRange> range = ParseProtocolRange(text);
  if (!range) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s is '%s', expected OLDEST..NEWEST", kProtocolHeader, text));
  }
  return CheckProtocol(
      {.name = "the gateway", .version = "unknown", .range = *range},
      {.name = "the engine", .version = std::string(kVersion), .range = OwnProtocol()});
}

}  // namespace

WatchStream* WatchStream::Start(Runtime& runtime, const KeyRing& keys,
                                const grpc::CallbackServerContext& context) {
  std::shared_ptr<WatchStream> stream(new WatchStream(runtime, keys));
  stream->self_ = stream;
  ++runtime.num_watch_streams();
  absl::Status status = CheckPeer(keys, context);
  if (status.ok()) {
    status = CheckGatewayProtocol(context);
    // Only of gateways: anybody else could fill the log.
    if (!status.ok()) LogWarn("gateway refused", {{"error", status.message()}});
  }
  if (!status.ok()) {
    stream->End(status);
    return stream.get();
  }
  stream->StartRead(&stream->request_);
  return stream.get();
}

void WatchStream::OnReadDone(bool ok) {
  if (!ok) return End(absl::OkStatus());
  switch (request_.action_case()) {
    case v1::WatchRequest::kSubscribe:
      Subscribe(request_.subscribe());
      break;
    case v1::WatchRequest::kUnsubscribe:
      Unsubscribe(request_.unsubscribe());
      break;
    case v1::WatchRequest::kDelivered:
      RecordDelivered(request_.delivered());
      break;
    case v1::WatchRequest::ACTION_NOT_SET:
      Write(v1::WatchResponse());
      break;
  }
  request_.Clear();
  absl::MutexLock lock(&mu_);
  ReadUnlessFull();
}

void WatchStream::ReadUnlessFull() {
  is_read_due_ = outgoing_bytes_ > kMaxOutgoingBytes;
  if (!is_read_due_ && !ended_) StartRead(&request_);
}

void WatchStream::Subscribe(const v1::WatchRequest::Subscribe& subscribe) {
  const std::string& request_id = subscribe.request_id();
  const absl::StatusOr<Caller> caller = keys_.AuthenticateAny(subscribe.api_key());
  if (!caller.ok()) return PushError(request_id, caller.status());
  // A repeated subscription asks for the current state. The request's end may overtake the answer.
  if (IsSubscribed(caller->tenant_id, request_id)) {
    return PushQueueState(request_id, runtime_.QueueOf(request_id));
  }
  Unsubscribe(request_id);  // from another tenant's subscription
  // Placeholder until the wait has an id. A notification that comes first removes it.
  if (!AddSubscription(caller->tenant_id, request_id)) {
    return PushError(request_id, absl::ResourceExhaustedError("too many subscriptions"));
  }
  const absl::StatusOr<ResultHub::Waiting> waiting = runtime_.hub().Wait(
      caller->tenant_id, request_id,
      [weak = weak_from_this(), tenant_id = caller->tenant_id, request_id](WaitEnd end) {
        if (const std::shared_ptr<WatchStream> stream = weak.lock()) {
          stream->PushEnd(tenant_id, request_id, end);
        }
      });
  if (waiting.status().code() == absl::StatusCode::kAlreadyExists) {
    return PushEnd(caller->tenant_id, request_id, WaitEnd::kDone);
  }
  if (!waiting.ok()) return PushError(request_id, waiting.status());
  {
    absl::MutexLock lock(&mu_);
    const auto subscription = subscriptions_.find(request_id);
    if (subscription != subscriptions_.end()) subscription->second.wait_id = waiting->wait_id;
  }
  if (waiting->queue.paused) PushQueueState(request_id, waiting->queue);
}

bool WatchStream::IsSubscribed(const std::string& tenant_id, const std::string& request_id) {
  absl::MutexLock lock(&mu_);
  const auto found = subscriptions_.find(request_id);
  return found != subscriptions_.end() && found->second.tenant_id == tenant_id;
}

bool WatchStream::AddSubscription(const std::string& tenant_id, const std::string& request_id) {
  absl::MutexLock lock(&mu_);
  if (subscriptions_.size() >= kMaxSubscriptions) return false;
  subscriptions_[request_id] = {.tenant_id = tenant_id};
  return true;
}

void WatchStream::Unsubscribe(const std::string& request_id) {
  uint64_t wait_id = 0;
  {
    absl::MutexLock lock(&mu_);
    const auto found = subscriptions_.find(request_id);
    if (found == subscriptions_.end()) return;
    wait_id = found->second.wait_id;
    subscriptions_.erase(found);
  }
  runtime_.hub().Cancel(request_id, wait_id);
}

void WatchStream::RecordDelivered(const v1::WatchRequest::Delivered& delivered) {
  const absl::StatusOr<Caller> caller = keys_.AuthenticateAny(delivered.api_key());
  if (caller.ok()) runtime_.RecordDelivered(caller->tenant_id, delivered.request_id());
}

std::string WatchStream::SmallResult(const std::string& tenant_id, const std::string& request_id) {
  const absl::StatusOr<SharedBytes> bytes = runtime_.hub().FindRecent(tenant_id, request_id);
  if (!bytes.ok() || *bytes == nullptr || (*bytes)->size() > kMaxInlineResultBytes) return {};
  return **bytes;
}

void WatchStream::PushEnd(const std::string& tenant_id, const std::string& request_id,
                          WaitEnd end) {
  if (end == WaitEnd::kReleased) return End(absl::UnavailableError("the engine is stopping"));
  v1::WatchResponse response;
  response.set_request_id(request_id);
  response.set_done(true);
  bool has_room = false;
  {
    absl::MutexLock lock(&mu_);
    subscriptions_.erase(request_id);
    has_room = outgoing_bytes_ <= kMaxOutgoingBytes;
  }
  // A gateway that does not read has to fetch the result.
  if (has_room) response.set_encoded_result(SmallResult(tenant_id, request_id));
  Write(std::move(response));
}

void WatchStream::PushQueueState(const std::string& request_id, const QueueStatus& queue) {
  v1::WatchResponse response;
  response.set_request_id(request_id);
  response.set_queue_state(queue.paused ? v1::QUEUE_STATE_PAUSED_CAPACITY : v1::QUEUE_STATE_ACTIVE);
  response.set_queue_state_reason(queue.reason);
  Write(std::move(response));
}

void WatchStream::PushError(const std::string& request_id, const absl::Status& status) {
  {
    absl::MutexLock lock(&mu_);
    subscriptions_.erase(request_id);
  }
  v1::WatchResponse response;
  response.set_request_id(request_id);
  *response.mutable_error() = ToErrorProto(status);
  Write(std::move(response));
}

void WatchStream::Write(v1::WatchResponse response) {
  absl::MutexLock lock(&mu_);
  if (ended_) return;
  outgoing_bytes_ += BytesOf(response);
  if (const v1::WatchResponse* next = outgoing_.Add(std::move(response))) StartWrite(next);
}

void WatchStream::OnWriteDone(bool ok) {
  if (!ok) return End(absl::CancelledError("the stream broke"));
  absl::MutexLock lock(&mu_);
  outgoing_bytes_ -= BytesOf(outgoing_.front());
  const v1::WatchResponse* next = outgoing_.Written();
  if (next != nullptr && !ended_) StartWrite(next, outgoing_.options());
  if (is_read_due_) ReadUnlessFull();
}

void WatchStream::OnCancel() { End(absl::CancelledError("the client left")); }

void WatchStream::End(const absl::Status& status) {
  {
    absl::MutexLock lock(&mu_);
    if (std::exchange(ended_, true)) return;
  }
  Finish(ToGrpcStatus(status));
}

void WatchStream::OnDone() {
  --runtime_.num_watch_streams();
  std::unordered_map<std::string, Subscription> subscriptions;
  {
    absl::MutexLock lock(&mu_);
    subscriptions.swap(subscriptions_);
  }
  for (const auto& [request_id, subscription] : subscriptions) {
    runtime_.hub().Cancel(request_id, subscription.wait_id);
  }
  self_.reset();
}

}  // namespace lathe::engine
