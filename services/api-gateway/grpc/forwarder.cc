#include "services/api-gateway/grpc/forwarder.h"

#include <google/protobuf/descriptor.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/client_callback.h>

#include <array>
#include <boost/asio/co_spawn.hpp>
#include <exception>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "libs/common/api_key/user_session.h"
#include "libs/common/errors.h"
#include "libs/common/request_bounds.h"
#include "libs/common/rpc/cluster_secret.h"
#include "libs/common/rpc/status.h"
#include "libs/common/time/clock.h"
#include "protos/lathe/v1/accounts.pb.h"
#include "protos/lathe/v1/checkpoints.pb.h"
#include "protos/lathe/v1/engine.pb.h"
#include "protos/lathe/v1/metrics.pb.h"
#include "protos/lathe/v1/streaming.pb.h"
#include "protos/lathe/v1/tenants.pb.h"
#include "protos/lathe/v1/traces.pb.h"
#include "protos/lathe/v1/users.pb.h"
#include "services/api-gateway/grpc/delivery.h"
#include "services/api-gateway/http/error_response.h"
#include "services/api-gateway/http/request_span.h"
#include "services/api-gateway/wire/wire_check.h"

namespace lathe::gateway {
namespace {

constexpr char kReflection[] = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
// Messages below this size cannot have more parts than MaxPartBytes allows.
constexpr size_t kCountedBytes = 1 << 20;
static_assert(static_cast<int64_t>(kCountedBytes / 2) * kMessagePartBytes <= MaxPartBytes(0));

// The files of the public services, without lathe.v1.SignIn, which is for gateways. A message of
// each makes the linker keep its descriptors.
std::array<const google::protobuf::FileDescriptor*, 8> PublicFiles() {
  return {v1::GetCapabilitiesRequest::descriptor()->file(),
          v1::SampleStreamResponse::descriptor()->file(),
          v1::CopyWeightsRequest::descriptor()->file(),
          v1::ListUsageRequest::descriptor()->file(),
          v1::GetOwnKeyRequest::descriptor()->file(),
          v1::QueryMetricsRequest::descriptor()->file(),
          v1::ListUsersRequest::descriptor()->file(),
          v1::OpenTraceRequest::descriptor()->file()};
}

// Metadata of the connection between client and gateway, which the next connection has itself, and
// sessions, which are for browsers.
bool IsHopByHop(std::string_view name) {
  return name.starts_with("grpc-") || name.starts_with(":") || name.starts_with("x-forwarded-") ||
         name == "content-type" || name == "te" || name == "user-agent" ||
         name == kGatewaySecretHeader || name == kUserSessionHeader;
}

std::string Text(const grpc::string_ref& text) { return std::string(text.data(), text.size()); }

// Parses gRPC's "ipv4:1.2.3.4:5" and "ipv6:%5B::1%5D:5". Other peers have no address.
asio::ip::address AddressOf(const std::string& peer) {
  const std::string text = absl::StrReplaceAll(peer, {{"%5B", ""}, {"%5D", ""}});
  const size_t begin = text.find(':') + 1;
  const size_t end = text.rfind(':');
  if (end == text.npos || end < begin) return {};
  boost::system::error_code error;
  const auto address = asio::ip::make_address(text.substr(begin, end - begin), error);
  return error ? asio::ip::address() : address;
}

// Counts the parts of a request before the engine parses it.
absl::Status CheckParts(grpc::ByteBuffer& message, const google::protobuf::Descriptor& type) {
  grpc::Slice slice;
  if (!message.DumpToSingleSlice(&slice).ok()) {
    return WithDetail(absl::InvalidArgumentError("the message is damaged"), "bad_proto");
  }
  const std::string_view bytes(reinterpret_cast<const char*>(slice.begin()), slice.size());
  const WireLimits limits{.max_part_bytes = MaxPartBytes(static_cast<int64_t>(bytes.size()))};
  return MeasureProto(bytes, type, limits).status();
}

grpc::Status ForClient(const grpc::Status& status) {
  if (status.ok()) return status;
  return ToGrpcStatus(EngineClient::ForClient(FromGrpcStatus(status)));
}

}  // namespace

// One call. It deletes itself when gRPC is done with it. Its two sides take turns:
//   client -> OnReadDone -> engine -> OnEngineWrote -> read on
//   engine -> OnEngineRead -> client -> OnWriteDone -> read on
class Forwarder::Call final : public grpc::ServerGenericBidiReactor {
 public:
  Call(Forwarder& forwarder, grpc::GenericCallbackServerContext& server, const Method& method);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  class EngineSide final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
   public:
    explicit EngineSide(Call& call) : call_(call) {}

    void OnReadInitialMetadataDone(bool ok) override { call_.OnEngineMetadata(ok); }
    void OnReadDone(bool ok) override { call_.OnEngineRead(ok); }
    void OnWriteDone(bool ok) override { call_.OnEngineWrote(ok); }
    void OnDone(const grpc::Status& status) override { call_.OnEngineDone(status); }

   private:
    Call& call_;
  };

  asio::awaitable<void> Authorize();
  // Begins the call to the engine and reads the first message.
  void Begin();
  void CopyMetadata();
  asio::awaitable<void> CheckLarge();
  // Reserves memory for the message that was read. Returns why it is refused.
  absl::Status Reserve();
  void SendToEngine();
  // Runs `operation` on the engine's side unless that is over.
  template <typename Operation>
  void OnEngineSide(Operation operation);
  // Ends a call whose message is refused.
  void Refuse(absl::Status status);
  void End(const grpc::Status& status);
  bool is_cancelled() {
    absl::MutexLock lock(&mu_);
    return is_cancelled_;
  }

  void OnEngineMetadata(bool ok);
  void OnEngineRead(bool ok);
  void OnEngineWrote(bool ok);
  void OnEngineDone(const grpc::Status& status);

  Forwarder& forwarder_;
  grpc::GenericCallbackServerContext& server_;
  const Method& method_;
  const absl::Time began_at_ = SteadyNow();
  Request request_;
  ByteBudget::Share memory_;
  bool is_counted_ = false;  // among the open calls of the key
  grpc::ByteBuffer from_client_;
  grpc::ByteBuffer from_engine_;
  std::unique_ptr<grpc::ClientContext> client_;
  EngineSide engine_{*this};
  Delivery delivery_;
  grpc::Status status_;
  absl::Mutex mu_;
  bool is_cancelled_ ABSL_GUARDED_BY(mu_) = false;
  bool has_begun_ ABSL_GUARDED_BY(mu_) = false;
  // True if no operation may be started on the engine's side any more.
  bool is_engine_over_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<absl::Status> refusal_ ABSL_GUARDED_BY(mu_);
};

Forwarder::Call::Call(Forwarder& forwarder, grpc::GenericCallbackServerContext& server,
                      const Method& method)
    : forwarder_(forwarder), server_(server), method_(method) {
  request_.path = server.method();
  for (const auto& [name, value] : server.client_metadata()) {
    request_.headers.push_back({Text(name), Text(value)});
  }
  request_.api_key = std::string(request_.HeaderValue("x-api-key"));
  forwarder.context_.proxies.Apply(AddressOf(server.peer()), request_);
  memory_ = ByteBudget::Share(forwarder.context_.budget, request_.api_key);
  asio::co_spawn(forwarder.context_.executor, Authorize(), [](std::exception_ptr) {});
}

asio::awaitable<void> Forwarder::Call::Authorize() {
  const absl::StatusOr<KeyState> state =
      co_await forwarder_.context_.authorize(method_.route, request_);
  absl::Status status = state.status();
  if (status.ok()) {
    status = forwarder_.Open(request_.api_key);
    is_counted_ = status.ok();
  }
  if (status.ok()) {
    BeginSpan(forwarder_.context_.tracer, method_.route, *state, request_);
    Begin();
  } else {
    End(ToGrpcStatus(status));
  }
}

void Forwarder::Call::Begin() {
  client_ = grpc::ClientContext::FromCallbackServerContext(server_);
  CopyMetadata();
  grpc::GenericStub stub(forwarder_.context_.engine.current_channel());
  bool is_cancelled = false;
  {
    absl::MutexLock lock(&mu_);
    is_cancelled = is_cancelled_;
    has_begun_ = !is_cancelled;
  }
  if (is_cancelled) return End(grpc::Status::CANCELLED);
  stub.PrepareBidiStreamingCall(client_.get(), server_.method(), {}, &engine_);
  // The hold lasts until a read from the engine fails. Until then operations may start outside of
  // the engine side's callbacks.
  engine_.AddHold();
  engine_.StartRead(&from_engine_);
  engine_.StartCall();
  StartRead(&from_client_);
}

void Forwarder::Call::CopyMetadata() {
  for (const Header& header : request_.headers) {
    // The engine records what a traceparent says, so a client's own never reaches it.
    if (IsHopByHop(header.name) || header.name == kTraceparent) continue;
    client_->AddMetadata(header.name, header.value);
  }
  if (request_.span.is_valid()) {
    client_->AddMetadata(kTraceparent, FormatTraceparent(request_.span));
  }
  forwarder_.context_.engine.Prove(*client_);
}

template <typename Operation>
void Forwarder::Call::OnEngineSide(Operation operation) {
  {
    absl::MutexLock lock(&mu_);
    if (is_engine_over_) return;
    engine_.AddHold();
  }
  operation();
  engine_.RemoveHold();
}

void Forwarder::Call::OnReadDone(bool ok) {
  if (!ok) return OnEngineSide([this] { engine_.StartWritesDone(); });
  if (absl::Status status = Reserve(); !status.ok()) return Refuse(std::move(status));
  delivery_.OnRequest(method_.descriptor, from_client_);
  if (from_client_.Length() < kCountedBytes || method_.descriptor == nullptr) {
    return SendToEngine();
  }
  asio::co_spawn(forwarder_.context_.executor, CheckLarge(), [](std::exception_ptr) {});
}

absl::Status Forwarder::Call::Reserve() {
  return memory_.GrowTo(static_cast<int64_t>(from_client_.Length()) * kBodyCopies);
}

asio::awaitable<void> Forwarder::Call::CheckLarge() {
  auto check = [](Call& call) -> asio::awaitable<absl::Status> {
    co_return CheckParts(call.from_client_, *call.method_.descriptor->input_type());
  }(*this);
  absl::Status status = co_await forwarder_.pool_.Run(std::move(check));
  if (status.ok()) {
    SendToEngine();
  } else {
    Refuse(std::move(status));
  }
}

void Forwarder::Call::SendToEngine() {
  OnEngineSide([this] { engine_.StartWrite(&from_client_); });
}

void Forwarder::Call::Refuse(absl::Status status) {
  {
    absl::MutexLock lock(&mu_);
    refusal_ = std::move(status);
  }
  client_->TryCancel();
}

void Forwarder::Call::OnEngineWrote(bool ok) {
  from_client_.Clear();
  memory_.Release();
  if (ok) StartRead(&from_client_);
}

void Forwarder::Call::OnEngineMetadata(bool ok) {
  if (!ok) return;
  for (const auto& [name, value] : client_->GetServerInitialMetadata()) {
    const std::string key = Text(name);
    if (!IsHopByHop(key)) server_.AddInitialMetadata(key, Text(value));
  }
}

void Forwarder::Call::OnEngineRead(bool ok) {
  if (ok) {
    delivery_.OnAnswer(from_engine_);
    return StartWrite(&from_engine_);
  }
  {
    absl::MutexLock lock(&mu_);
    is_engine_over_ = true;
  }
  engine_.RemoveHold();
}

void Forwarder::Call::OnWriteDone(bool ok) {
  if (!ok) client_->TryCancel();
  engine_.StartRead(&from_engine_);  // the hold lasts, because no read has failed
}

void Forwarder::Call::OnEngineDone(const grpc::Status& status) {
  for (const auto& [name, value] : client_->GetServerTrailingMetadata()) {
    const std::string key = Text(name);
    if (!IsHopByHop(key)) server_.AddTrailingMetadata(key, Text(value));
  }
  std::optional<absl::Status> refusal;
  {
    absl::MutexLock lock(&mu_);
    refusal = refusal_;
  }
  End(refusal ? ToGrpcStatus(*refusal) : ForClient(status));
}

void Forwarder::Call::OnCancel() {
  {
    absl::MutexLock lock(&mu_);
    is_cancelled_ = true;
    if (!has_begun_) return;  // Begin or Authorize ends the call
  }
  client_->TryCancel();
}

void Forwarder::Call::End(const grpc::Status& status) {
  status_ = status;
  Finish(status);
}

void Forwarder::Call::OnDone() {
  if (is_counted_) forwarder_.Close(request_.api_key);
  if (status_.ok() && !delivery_.request_id().empty() && !is_cancelled()) {
    forwarder_.context_.watch.Acknowledge(delivery_.request_id(), request_.api_key);
  }
  const absl::Status status = FromGrpcStatus(status_);
  const Answered answered = {.route = &method_.route,
                             .status = status.ok() ? 200 : HttpStatus(status),
                             .took = SteadyNow() - began_at_};
  if (forwarder_.context_.on_answered) forwarder_.context_.on_answered(answered);
  EndSpan(forwarder_.context_.tracer, request_, answered, delivery_.request_id());
  delete this;
}

Forwarder::Forwarder(ForwarderContext context) : context_(std::move(context)) {
  const auto add = [this](const std::string& path, Access access,
                          const google::protobuf::MethodDescriptor* descriptor) {
    Method& method = methods_[path];
    method.descriptor = descriptor;
    method.route.method = "GRPC";
    method.route.pattern = path;
    method.route.access = access;
  };
  for (const google::protobuf::FileDescriptor* file : PublicFiles()) {
    for (int i = 0; i < file->service_count(); ++i) {
      const google::protobuf::ServiceDescriptor& service = *file->service(i);
      service_names_.push_back(service.full_name());
      for (int j = 0; j < service.method_count(); ++j) {
        add(absl::StrCat("/", service.full_name(), "/", service.method(j)->name()), Access::kKey,
            service.method(j));
      }
    }
  }
  if (context_.reflection) add(kReflection, Access::kPublic, nullptr);
}

grpc::ServerGenericBidiReactor* Forwarder::CreateReactor(
    grpc::GenericCallbackServerContext* context) {
  const auto method = methods_.find(context->method());
  if (method != methods_.end()) return new Call(*this, *context, method->second);
  class Unknown final : public grpc::ServerGenericBidiReactor {
   public:
    Unknown() { Finish({grpc::StatusCode::UNIMPLEMENTED, "this server has no such method"}); }
    void OnDone() override { delete this; }
  };
  return new Unknown;
}

absl::Status Forwarder::Open(const std::string& api_key) {
  absl::MutexLock lock(&mu_);
  int64_t& num_calls = num_calls_[api_key];
  if (num_calls >= context_.max_calls_per_key) {
    return WithDetail(
        absl::ResourceExhaustedError(absl::StrFormat(
            "this key has %d open calls, which is the limit; end some of them", num_calls)),
        "too_many_calls");
  }
  ++num_calls;
  return absl::OkStatus();
}

void Forwarder::Close(const std::string& api_key) {
  absl::MutexLock lock(&mu_);
  const auto calls = num_calls_.find(api_key);
  if (--calls->second == 0) num_calls_.erase(calls);
}

}  // namespace lathe::gateway
