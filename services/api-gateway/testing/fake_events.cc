#include "services/api-gateway/testing/fake_events.h"

#include <utility>

#include "absl/time/time.h"

namespace lathe::gateway {

void FakeEvents::SetTerm(int64_t term) {
  absl::MutexLock lock(&mu_);
  term_ = term;
}

void FakeEvents::PushPoint(const std::string& run_id, int64_t step, double value) {
  v1::EventsResponse response;
  v1::FeedEvent& event = *response.mutable_event_of_feed();
  event.set_feed_id(kRunFeed);
  event.mutable_points()->set_training_run_id(run_id);
  v1::NewPoints& series = *event.mutable_points()->add_series();
  series.set_name("loss");
  series.set_count(step + 1);
  series.add_steps(step);
  series.add_times_ms(step);
  series.add_values(value);
  absl::MutexLock lock(&mu_);
  if (stream_ != nullptr) stream_->Write(response);
}

void FakeEvents::RefuseAll() {
  absl::MutexLock lock(&mu_);
  for (const int64_t id : accepted_) {
    Refuse(id, grpc::StatusCode::UNAUTHENTICATED, "unauthenticated");
  }
  accepted_.clear();
}

bool FakeEvents::AwaitSubscriptions(size_t count) {
  absl::MutexLock lock(&mu_);
  const auto has_all = [this, count]()
                           ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return accepted_.size() == count; };
  return mu_.AwaitWithTimeout(absl::Condition(&has_all), absl::Seconds(10));
}

int FakeEvents::num_streams() {
  absl::MutexLock lock(&mu_);
  return num_streams_;
}

grpc::Status FakeEvents::Stream(grpc::ServerContext*, Server* stream) {
  {
    absl::MutexLock lock(&mu_);
    stream_ = stream;
    ++num_streams_;
    accepted_.clear();
  }
  v1::EventsRequest request;
  while (stream->Read(&request)) {
    absl::MutexLock lock(&mu_);
    Answer(request);
  }
  absl::MutexLock lock(&mu_);
  if (stream_ == stream) stream_ = nullptr;
  return grpc::Status::OK;
}

void FakeEvents::Answer(const v1::EventsRequest& request) {
  if (request.action_case() == v1::EventsRequest::kUnsubscribe) {
    accepted_.erase(request.unsubscribe());
  }
  if (!request.has_subscribe()) return;
  const v1::EventsRequest::Subscribe& subscribe = request.subscribe();
  const int64_t id = subscribe.subscription_id();
  if (subscribe.training_run_id() == "absent") {
    return Refuse(id, grpc::StatusCode::NOT_FOUND, "not_found");
  }
  v1::EventsResponse response;
  response.mutable_subscribed()->set_subscription_id(id);
  response.mutable_subscribed()->set_term(term_);
  response.mutable_subscribed()->set_feed_id(subscribe.training_run_id().empty() ? kTenantFeed
                                                                                 : kRunFeed);
  stream_->Write(response);
  accepted_.insert(id);
}

void FakeEvents::Refuse(int64_t subscription_id, grpc::StatusCode code, const char* word) {
  if (stream_ == nullptr) return;
  v1::EventsResponse response;
  response.mutable_refused()->set_subscription_id(subscription_id);
  response.mutable_refused()->set_grpc_status(code);
  response.mutable_refused()->mutable_error()->set_code(word);
  stream_->Write(response);
}

}  // namespace lathe::gateway
