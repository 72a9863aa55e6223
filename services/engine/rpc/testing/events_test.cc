// Events of a whole engine: points of a run, changes of a tenant, and who may have them.
#include <grpcpp/grpcpp.h>

#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "protos/lathe/v1/events.grpc.pb.h"
#include "protos/lathe/v1/metrics.grpc.pb.h"
#include "services/engine/rpc/testing/test_client.h"

namespace lathe::engine {
namespace {

// The stream of a gateway.
class Stream {
 public:
  explicit Stream(TestEngine& engine)
      : stub_(v1::Events::NewStub(engine.channel())), stream_(stub_->Stream(&context_)) {}
  ~Stream() { context_.TryCancel(); }

  void Subscribe(int64_t subscription_id, const std::string& key, const std::string& run_id = "") {
    v1::EventsRequest request;
    request.mutable_subscribe()->set_subscription_id(subscription_id);
    request.mutable_subscribe()->set_api_key(key);
    request.mutable_subscribe()->set_training_run_id(run_id);
    REQUIRE(stream_->Write(request));
  }

  v1::EventsResponse Next() {
    v1::EventsResponse response;
    REQUIRE(stream_->Read(&response));
    return response;
  }

  // Skips events until one has points.
  v1::RunPoints Points() {
    while (true) {
      const v1::EventsResponse response = Next();
      REQUIRE(response.has_event_of_feed());
      if (response.event_of_feed().has_points()) return response.event_of_feed().points();
    }
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<v1::Events::Stub> stub_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::EventsRequest, v1::EventsResponse>> stream_;
};

void Append(Fixture& f, int64_t step, double value) {
  v1::AppendMetricsRequest request;
  request.set_training_run_id(f.client.model_id());
  v1::MetricPoint& point = *request.add_points();
  point.set_name("reward");
  point.set_step(step);
  point.set_value(value);
  v1::AppendMetricsResponse response;
  REQUIRE(v1::Metrics::NewStub(f.engine.channel())
              ->Append(CallContext(f.client.key()), request, &response)
              .ok());
}

TEST_CASE("Events: subscriptions of one tenant to a run share its feed", "[engine]") {
  Fixture f;
  f.client.MakeModel();
  Append(f, 1, 0.5);
  Stream stream(f.engine);
  stream.Subscribe(1, f.client.key(), f.client.model_id());
  const v1::EventsResponse first = stream.Next();
  REQUIRE(first.has_subscribed());
  CHECK(first.subscribed().term() == f.engine.runtime().term());
  stream.Subscribe(2, f.client.key(), f.client.model_id());
  const v1::EventsResponse second = stream.Next();
  CHECK(second.subscribed().subscription_id() == 2);
  CHECK(second.subscribed().feed_id() == first.subscribed().feed_id());
  Append(f, 2, 0.75);
  const v1::RunPoints points = stream.Points();
  CHECK(points.training_run_id() == f.client.model_id());
  REQUIRE(points.series_size() == 1);
  // The point before the subscription is counted and not sent.
  CHECK(points.series(0).count() == 2);
  REQUIRE(points.series(0).steps_size() == 1);
  CHECK(points.series(0).steps(0) == 2);
  CHECK(points.series(0).values(0) == 0.75);
}

TEST_CASE("Events: another tenant's run is refused like an absent one", "[engine]") {
  Fixture f;
  f.client.MakeModel();
  const std::string stranger = f.engine.MakeKey("other");
  Stream stream(f.engine);
  stream.Subscribe(1, stranger, f.client.model_id());
  const v1::EventsResponse refused = stream.Next();
  REQUIRE(refused.has_refused());
  CHECK(refused.refused().grpc_status() == static_cast<int>(grpc::StatusCode::NOT_FOUND));
  stream.Subscribe(2, f.engine.MakeKey("default", {"train"}), f.client.model_id());
  CHECK(stream.Next().refused().error().code() == "missing_scope");
  // The refusals leave the stream to others.
  stream.Subscribe(3, f.client.key(), f.client.model_id());
  CHECK(stream.Next().has_subscribed());
  Append(f, 1, 1.0);
  CHECK(stream.Points().series(0).name() == "reward");
}

TEST_CASE("Events: a revoked key ends its subscription", "[engine]") {
  Fixture f;
  const std::string key = f.engine.MakeKey("default", {"read"});
  Stream stream(f.engine);
  stream.Subscribe(1, key);
  REQUIRE(stream.Next().has_subscribed());
  for (const KeyRing::ListedKey& listed : f.engine.keys().List()) {
    if (key.find(listed.row.key_id) != std::string::npos) {
      REQUIRE(f.engine.keys().Revoke(listed.row.key_id).ok());
    }
  }
  v1::EventsResponse response;
  while (!response.has_refused()) response = stream.Next();
  CHECK(response.refused().subscription_id() == 1);
  CHECK(response.refused().grpc_status() == static_cast<int>(grpc::StatusCode::UNAUTHENTICATED));
}

TEST_CASE("Events: an engine that stops ends its streams at once", "[engine]") {
  Fixture f;
  Stream stream(f.engine);
  stream.Subscribe(1, f.client.key());
  REQUIRE(stream.Next().has_subscribed());
  f.engine.Stop();
}

}  // namespace
}  // namespace lathe::engine
