#include "services/api-gateway/testing/fake_engine.h"

#include <grpcpp/server_builder.h>
#include <stdlib.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "libs/common/api_key/user_session.h"
#include "libs/common/errors.h"
#include "libs/common/protocol.h"
#include "libs/common/rpc/cluster_secret.h"
#include "libs/common/rpc/server.h"
#include "libs/common/rpc/status.h"

namespace lathe::gateway {
namespace {

std::string KeyOf(const grpc::ServerContext* context) {
  const auto key = context->client_metadata().find("x-api-key");
  if (key == context->client_metadata().end()) return "";
  return std::string(key->second.data(), key->second.size());
}

grpc::Status Fail(absl::Status status, std::string_view word) {
  return ToGrpcStatus(WithDetail(std::move(status), word));
}

grpc::Status NoRequest(const std::string& request_id) {
  return Fail(absl::NotFoundError(absl::StrCat("no request ", request_id)), "not_found");
}

grpc::Status CheckKey(const grpc::ServerContext* context) {
  if (KeyOf(context) == FakeEngine::kFakeKey) return grpc::Status::OK;
  const auto session = context->client_metadata().find(kUserSessionHeader);
  if (session != context->client_metadata().end()) {
    if (session->second == FakeEngine::kFakeSession) return grpc::Status::OK;
    return Fail(absl::UnauthenticatedError("the session has ended; sign in again"), "bad_session");
  }
  return Fail(absl::UnauthenticatedError("unknown key"), "unauthenticated");
}

std::string GatewaySecretOfCall(const grpc::ServerContext& context) {
  std::string secrets;
  for (const auto& [name, value] : context.client_metadata()) {
    if (name == kGatewaySecretHeader) secrets.append(value.data(), value.size());
  }
  return secrets;
}

}  // namespace

FakeEngine::FakeEngine(std::vector<grpc::Service*> more) : more_(std::move(more)) {
  char folder[] = "/tmp/lathe-fake-engine-XXXXXX";
  dir_ = mkdtemp(folder);
  address_ = absl::StrCat("unix:", dir_, "/engine.sock");
  StartServing();
}

FakeEngine::~FakeEngine() {
  StopServing();
  std::filesystem::remove_all(dir_);
}

void FakeEngine::StartServing() {
  grpc::ServerBuilder builder;
  ApplyServerDefaults(builder);
  AddListener(builder, address_);
  builder.RegisterService(this);
  for (grpc::Service* const service : more_) builder.RegisterService(service);
  builder.RegisterService(&events_);
  server_ = builder.BuildAndStart();
}

void FakeEngine::StopServing() {
  if (!server_) return;
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
  server_.reset();
}

std::string FakeEngine::Count(const std::string& method) {
  const std::string request_id = absl::StrCat(method, "-", ++num_calls_[method]);
  request_ids_.insert(request_id);
  return request_id;
}

void FakeEngine::Push(const std::string& request_id) {
  if (stream_ == nullptr || watched_.count(request_id) == 0) return;
  v1::WatchResponse response;
  response.set_request_id(request_id);
  const auto result = results_.find(request_id);
  response.set_done(result != results_.end());
  if (response.done() && inlines_results_) {
    response.set_encoded_result(result->second.SerializeAsString());
  }
  if (request_ids_.count(request_id) == 0) {
    *response.mutable_error() =
        ToErrorProto(WithDetail(absl::NotFoundError("no such request"), "not_found"));
  }
  const auto state = states_.find(request_id);
  if (state != states_.end()) {
    response.set_queue_state(state->second);
    response.set_queue_state_reason("2 requests are before it");
  }
  if (response.done() || response.has_error()) watched_.erase(request_id);
  stream_->Write(response);
}

void FakeEngine::Settle(const std::string& request_id, v1::OperationResult result) {
  absl::MutexLock lock(&mu_);
  request_ids_.insert(request_id);
  results_[request_id] = std::move(result);
  Push(request_id);
}

void FakeEngine::SetHangs(bool hangs) {
  absl::MutexLock lock(&mu_);
  hangs_ = hangs;
}

void FakeEngine::SetInlineResults(bool inlines) {
  absl::MutexLock lock(&mu_);
  inlines_results_ = inlines;
}

void FakeEngine::SetQueueState(const std::string& request_id, v1::QueueState state) {
  absl::MutexLock lock(&mu_);
  request_ids_.insert(request_id);
  states_[request_id] = state;
  Push(request_id);
}

bool FakeEngine::AwaitLocked(const absl::Condition& condition) {
  return mu_.AwaitWithTimeout(condition, absl::Seconds(10));
}

bool FakeEngine::AwaitSubscription(const std::string& request_id) {
  absl::MutexLock lock(&mu_);
  const auto is_watched = [this, &request_id]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return watched_.count(request_id) > 0;
  };
  return AwaitLocked(absl::Condition(&is_watched));
}

bool FakeEngine::AwaitUnsubscription(const std::string& request_id) {
  absl::MutexLock lock(&mu_);
  const auto is_forgotten = [this, &request_id]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return watched_.count(request_id) == 0;
  };
  return AwaitLocked(absl::Condition(&is_forgotten));
}

bool FakeEngine::AwaitCalls(const std::string& method, int count) {
  absl::MutexLock lock(&mu_);
  const auto have_come = [this, &method, count]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return num_calls_[method] >= count;
  };
  return AwaitLocked(absl::Condition(&have_come));
}

std::set<std::string> FakeEngine::gateway_secrets() {
  absl::MutexLock lock(&mu_);
  return gateway_secrets_;
}

std::string FakeEngine::last_traceparent() {
  absl::MutexLock lock(&mu_);
  return traceparent_;
}

std::string FakeEngine::watch_protocol() {
  absl::MutexLock lock(&mu_);
  return watch_protocol_;
}

int FakeEngine::num_calls(const std::string& method) {
  absl::MutexLock lock(&mu_);
  return num_calls_[method];
}

v1::ForwardBackwardRequest FakeEngine::last_forward_backward() {
  absl::MutexLock lock(&mu_);
  return forward_backward_;
}

v1::GetResultRequest FakeEngine::last_get_result() {
  absl::MutexLock lock(&mu_);
  return get_result_;
}

v1::SampleRequest FakeEngine::last_sample() {
  absl::MutexLock lock(&mu_);
  return sample_;
}

v1::AwaitSamplesRequest FakeEngine::last_await_samples() {
  absl::MutexLock lock(&mu_);
  return await_samples_;
}

v1::CreateSessionRequest FakeEngine::last_create_session() {
  absl::MutexLock lock(&mu_);
  return session_;
}

v1::PublishCheckpointRequest FakeEngine::last_publish() {
  absl::MutexLock lock(&mu_);
  return publish_;
}

void FakeEngine::SetArchive(v1::OpenArchiveResponse archive) {
  absl::MutexLock lock(&mu_);
  archive_ = std::move(archive);
}

grpc::Status FakeEngine::Authenticate(grpc::ServerContext* context, const v1::AuthenticateRequest*,
                                      v1::AuthenticateResponse* response) {
  absl::MutexLock lock(&mu_);
  gateway_secrets_.insert(GatewaySecretOfCall(*context));
  ++num_calls_["Authenticate"];
  response->set_cache_seconds(5);
  return CheckKey(context);
}

grpc::Status FakeEngine::GetCapabilities(grpc::ServerContext*, const v1::GetCapabilitiesRequest*,
                                         v1::GetCapabilitiesResponse* response) {
  v1::ServedModel* model = response->add_models();
  model->set_name("tiny");
  model->set_max_context_length(2048);
  model->set_trainable(true);
  model->set_sampleable(true);
  return grpc::Status::OK;
}

grpc::Status FakeEngine::CreateSession(grpc::ServerContext*,
                                       const v1::CreateSessionRequest* request,
                                       v1::CreateSessionResponse* response) {
  absl::MutexLock lock(&mu_);
  session_ = *request;
  response->set_session_id(Count("CreateSession"));
  return grpc::Status::OK;
}

grpc::Status FakeEngine::Heartbeat(grpc::ServerContext*, const v1::HeartbeatRequest* request,
                                   v1::HeartbeatResponse* response) {
  response->set_finished(request->session_id() == "finished");
  return grpc::Status::OK;
}

grpc::Status FakeEngine::ForwardBackward(grpc::ServerContext* context,
                                         const v1::ForwardBackwardRequest* request,
                                         v1::SubmitResponse* response) {
  if (grpc::Status status = CheckKey(context); !status.ok()) return status;
  absl::MutexLock lock(&mu_);
  gateway_secrets_.insert(GatewaySecretOfCall(*context));
  const auto traceparent = context->client_metadata().find("traceparent");
  traceparent_ = traceparent == context->client_metadata().end()
                     ? ""
                     : std::string(traceparent->second.data(), traceparent->second.size());
  forward_backward_ = *request;
  response->set_request_id(Count("ForwardBackward"));
  return grpc::Status::OK;
}

grpc::Status FakeEngine::OptimStep(grpc::ServerContext*, const v1::OptimStepRequest* request,
                                   v1::SubmitResponse* response) {
  if (request->adam_params().learning_rate() < 0) {
    return ToGrpcStatus(
        WithDetail(absl::InvalidArgumentError("learning_rate is -1, allowed is 0 or more"),
                   "bad_optimizer", "adam_params.learning_rate"));
  }
  absl::MutexLock lock(&mu_);
  response->set_request_id(Count("OptimStep"));
  return grpc::Status::OK;
}

grpc::Status FakeEngine::Sample(grpc::ServerContext*, const v1::SampleRequest* request,
                                v1::SampleSubmitResponse* response) {
  absl::MutexLock lock(&mu_);
  sample_ = *request;
  response->set_request_id(Count("Sample"));
  for (int64_t i = 0; i < request->num_samples(); ++i) {
    response->add_sample_sequence_ids(
        absl::StrCat(request->sampling_session_id(), ":", request->seq_id(), ":", i));
  }
  return grpc::Status::OK;
}

grpc::Status FakeEngine::GetResult(grpc::ServerContext* context,
                                   const v1::GetResultRequest* request,
                                   v1::GetResultResponse* response) {
  if (grpc::Status status = CheckKey(context); !status.ok()) return status;
  absl::MutexLock lock(&mu_);
  ++num_calls_["GetResult"];
  get_result_ = *request;
  const bool may_answer = AwaitLocked(absl::Condition(
      +[](bool* hangs) { return !*hangs; }, &hangs_));
  if (!may_answer) hangs_ = false;
  if (request->request_id() == "expired") {
    return Fail(absl::OutOfRangeError("the result is gone"), "result_expired");
  }
  if (request_ids_.count(request->request_id()) == 0) return NoRequest(request->request_id());
  const auto result = results_.find(request->request_id());
  if (result != results_.end()) {
    *response->mutable_result() = result->second;
  } else {
    response->set_queue_state(states_[request->request_id()]);
    response->set_queue_state_reason("2 requests are before it");
  }
  return grpc::Status::OK;
}

grpc::Status FakeEngine::AwaitSamples(grpc::ServerContext* context,
                                      const v1::AwaitSamplesRequest* request,
                                      v1::AwaitSamplesResponse* response) {
  if (grpc::Status status = CheckKey(context); !status.ok()) return status;
  if (request->cursor() < 0) return Fail(absl::InvalidArgumentError("cursor is -1"), "bad_cursor");
  const absl::Time deadline = absl::Now() + absl::Milliseconds(request->wait_ms());
  absl::MutexLock lock(&mu_);
  ++num_calls_["AwaitSamples"];
  await_samples_ = *request;
  const auto has_ended = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return ended_samples_.samples_size() > 0;
  };
  // The synchronous API does not notify of a cancelled call, so this loop polls for it.
  while (!mu_.AwaitWithTimeout(absl::Condition(&has_ended), absl::Milliseconds(5))) {
    if (context->IsCancelled()) {
      ++num_calls_["AwaitSamplesCancelled"];
      return grpc::Status::CANCELLED;
    }
    if (absl::Now() >= deadline) break;
  }
  *response = ended_samples_;
  if (!has_ended()) response->set_cursor(request->cursor());
  return grpc::Status::OK;
}

void FakeEngine::SetEndedSamples(v1::AwaitSamplesResponse response) {
  absl::MutexLock lock(&mu_);
  ended_samples_ = std::move(response);
}

grpc::Status FakeEngine::ListCheckpoints(grpc::ServerContext*,
                                         const v1::ListCheckpointsRequest* request,
                                         v1::ListCheckpointsResponse* response) {
  constexpr int64_t kNumCheckpoints = 1500;
  const int64_t end = std::min(kNumCheckpoints, request->offset() + request->limit());
  for (int64_t i = request->offset(); i < end; ++i) {
    v1::Checkpoint* checkpoint = response->add_checkpoints();
    checkpoint->set_checkpoint_id(absl::StrCat("weights/", i));
    checkpoint->set_checkpoint_type("training");
    checkpoint->set_tinker_path(absl::StrCat("tinker://s:train:0/weights/", i));
  }
  response->set_total_count(kNumCheckpoints);
  return grpc::Status::OK;
}

grpc::Status FakeEngine::PublishCheckpoint(grpc::ServerContext*,
                                           const v1::PublishCheckpointRequest* request,
                                           v1::PublishCheckpointResponse*) {
  absl::MutexLock lock(&mu_);
  publish_ = *request;
  return grpc::Status::OK;
}

grpc::Status FakeEngine::DescribeArchive(grpc::ServerContext*, const v1::DescribeArchiveRequest*,
                                         v1::DescribeArchiveResponse* response) {
  response->set_token("t0ken-_");
  response->mutable_expires_at()->set_seconds(1'767'225'600);  // 2026-01-01
  return grpc::Status::OK;
}

grpc::Status FakeEngine::OpenArchive(grpc::ServerContext*, const v1::OpenArchiveRequest* request,
                                     v1::OpenArchiveResponse* response) {
  absl::MutexLock lock(&mu_);
  if (request->token() != "t0ken-_") return Fail(absl::NotFoundError("bad token"), "not_found");
  *response = archive_;
  return grpc::Status::OK;
}

grpc::Status FakeEngine::Watch(grpc::ServerContext* context, WatchServer* stream) {
  const auto protocol = context->client_metadata().find(kProtocolHeader);
  {
    absl::MutexLock lock(&mu_);
    if (protocol != context->client_metadata().end()) {
      watch_protocol_.assign(protocol->second.data(), protocol->second.size());
    }
    gateway_secrets_.insert(GatewaySecretOfCall(*context));
    stream_ = stream;
    watched_.clear();
    ++num_calls_["Watch"];
  }
  v1::WatchRequest request;
  while (stream->Read(&request)) {
    absl::MutexLock lock(&mu_);
    if (request.has_subscribe()) {
      const std::string& request_id = request.subscribe().request_id();
      const bool is_asked_again = !watched_.insert(request_id).second;
      if (!is_asked_again) ++num_calls_["WatchSubscribe"];
      // A pending request is answered only if its state changes or if it is subscribed to again.
      const bool is_pending = results_.count(request_id) == 0 && request_ids_.count(request_id) > 0;
      if (is_asked_again || !is_pending) Push(request_id);
    } else if (request.has_unsubscribe()) {
      watched_.erase(request.unsubscribe());
    } else if (request.has_delivered()) {
      ++num_calls_["WatchDelivered"];
    } else {
      ++num_calls_["WatchHeartbeat"];
      stream->Write(v1::WatchResponse());
    }
  }
  absl::MutexLock lock(&mu_);
  if (stream_ == stream) stream_ = nullptr;
  return grpc::Status::OK;
}

}  // namespace lathe::gateway
