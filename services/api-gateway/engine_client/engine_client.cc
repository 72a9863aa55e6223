#include "services/api-gateway/engine_client/engine_client.h"

#include "libs/common/fail_point/fail_point.h"

namespace lathe::gateway {

EngineClient::EngineClient(const std::vector<std::string>& addresses) {
  for (const std::string& address : addresses) {
    const std::shared_ptr<grpc::Channel> channel = MakeChannel(address);
    peers_.push_back({address, channel, v1::Engine::NewStub(channel)});
  }
}

void EngineClient::CancelAll() {
  absl::MutexLock lock(&mu_);
  for (grpc::ClientContext* context : calls_) context->TryCancel();
}

std::string EngineClient::current_address() const { return peers_[current_].address; }

void EngineClient::ReportUnavailable(const std::string& address) {
  size_t index = current_;
  if (peers_[index].address != address) return;  // somebody moved on already
  current_.compare_exchange_strong(index, (index + 1) % peers_.size());
}

void CallStop::Stop() {
  absl::MutexLock lock(&mu_);
  is_stopped_ = true;
  if (context_ != nullptr) context_->TryCancel();
}

void CallStop::Begin(grpc::ClientContext& context) {
  absl::MutexLock lock(&mu_);
  context_ = &context;
  if (is_stopped_) context.TryCancel();
}

void CallStop::End() {
  absl::MutexLock lock(&mu_);
  context_ = nullptr;
}

EngineClient::LiveCall::LiveCall(EngineClient& client, grpc::ClientContext& context, CallStop* stop)
    : client_(client), context_(context), stop_(stop) {
  FailPoint("gateway.engine.before");
  if (stop_ != nullptr) stop_->Begin(context_);
  absl::MutexLock lock(&client_.mu_);
  client_.calls_.insert(&context_);
}

EngineClient::LiveCall::~LiveCall() {
  FailPoint("gateway.engine.after");
  if (stop_ != nullptr) stop_->End();
  absl::MutexLock lock(&client_.mu_);
  client_.calls_.erase(&context_);
}

}  // namespace lathe::gateway
