// Tests long polls over real sockets and one Watch stream.
#include <boost/asio/io_context.hpp>
#include <catch2/catch.hpp>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "protos/tinker/tinker_public.pb.h"
#include "services/api-gateway/engine_client/watch_client.h"
#include "services/api-gateway/json/parse_json.h"
#include "services/api-gateway/testing/checks.h"
#include "services/api-gateway/testing/fake_engine.h"
#include "services/api-gateway/testing/http_client.h"
#include "services/api-gateway/testing/running_gateway.h"

namespace lathe::gateway {
namespace {

constexpr char kPollPath[] = "/api/v1/retrieve_future";

std::string PollBody(const std::string& request_id) {
  return absl::StrCat(R"({"request_id":")", request_id, R"(","allow_metadata_only":true})");
}

v1::OperationResult Stepped(double grad_norm) {
  v1::OperationResult result;
  result.set_kind(v1::OPERATION_KIND_OPTIM_STEP);
  v1::NamedNumber* metric = result.mutable_optim_step()->add_metrics();
  metric->set_name("grad_norm");
  metric->set_value(grad_norm);
  return result;
}

TEST_CASE("A finished request is answered at once", "[poll]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  engine.Settle("r1", Stepped(2));
  CHECK(HttpClient(gateway.port()).Post(kPollPath, PollBody("r1")).body ==
        R"({"metrics":{"grad_norm":2.0}})");
}

TEST_CASE("A small result comes with its notification", "[poll]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  engine.SetQueueState("r1", v1::QUEUE_STATE_ACTIVE);
  HttpClient client(gateway.port());
  client.Send("POST", kPollPath, PollBody("r1"));
  REQUIRE(engine.AwaitSubscription("r1"));
  engine.Settle("r1", Stepped(3));
  CHECK(client.Receive().body == R"({"metrics":{"grad_norm":3.0}})");
  CHECK(engine.num_calls("GetResult") == 0);
}

TEST_CASE("A result is acknowledged once its answer was written", "[poll]") {
  const bool inlines = GENERATE(true, false);
  FakeEngine engine;
  RunningGateway gateway(engine);
  engine.SetInlineResults(inlines);
  engine.SetQueueState("r1", v1::QUEUE_STATE_ACTIVE);
  HttpClient client(gateway.port());
  client.Send("POST", kPollPath, PollBody("r1"));
  REQUIRE(engine.AwaitSubscription("r1"));
  CHECK(engine.num_calls("WatchDelivered") == 0);
  engine.Settle("r1", Stepped(3));
  CHECK(client.Receive().status == 200);
  CHECK(engine.AwaitCalls("WatchDelivered", 1));
}

TEST_CASE("A poll whose client has left acknowledges nothing", "[poll]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  engine.SetQueueState("r1", v1::QUEUE_STATE_ACTIVE);
  {
    HttpClient client(gateway.port());
    client.Send("POST", kPollPath, PollBody("r1"));
    REQUIRE(engine.AwaitSubscription("r1"));
    client.Close();
  }
  engine.Settle("r1", Stepped(3));
  engine.Settle("r2", Stepped(4));
  HttpClient(gateway.port()).Post(kPollPath, PollBody("r2"));
  REQUIRE(engine.AwaitCalls("WatchDelivered", 1));
  CHECK(engine.num_calls("WatchDelivered") == 1);
}

TEST_CASE("A result that came with its notification is only for the key it was checked with",
          "[poll]") {
  FakeEngine engine;
  asio::io_context io;
  EngineClient client({engine.address()});
  WatchClient watch(io.get_executor(), client);
  io.poll();  // starts the stream
  absl::Mutex mu;
  std::vector<WatchUpdate> updates(2);
  const auto remember = [&](size_t i) {
    return [&, i](const WatchUpdate& update) {
      absl::MutexLock lock(&mu);
      updates[i] = update;
    };
  };
  engine.SetQueueState("r1", v1::QUEUE_STATE_ACTIVE);
  watch.Subscribe("r1", FakeEngine::kFakeKey, remember(0));
  watch.Subscribe("r1", "tml-another", remember(1));
  REQUIRE(engine.AwaitSubscription("r1"));
  engine.Settle("r1", Stepped(3));
  const auto both_done = [&] { return updates[0].is_done && updates[1].is_done; };
  {
    absl::MutexLock lock(&mu);
    REQUIRE(mu.AwaitWithTimeout(absl::Condition(&both_done), absl::Seconds(10)));
    CHECK(updates[0].result != nullptr);
    CHECK(updates[1].result == nullptr);
  }
}

// A WatchClient whose timers never fire, because `io` runs only once.
struct Watcher {
  Watcher() { io.poll(); }  // starts the stream

  int64_t Subscribe(const std::string& api_key = FakeEngine::kFakeKey) {
    return watch.Subscribe("r1", api_key, [this](const WatchUpdate& update) {
      absl::MutexLock lock(&mu);
      updates.push_back(update);
    });
  }
  bool AwaitUpdates(size_t count) {
    const auto are_there = [this, count]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
      return updates.size() >= count;
    };
    absl::MutexLock lock(&mu);
    return mu.AwaitWithTimeout(absl::Condition(&are_there), absl::Seconds(10));
  }

  std::vector<WatchUpdate> Updates() {
    absl::MutexLock lock(&mu);
    return updates;
  }

  FakeEngine engine;
  asio::io_context io;
  EngineClient client{{engine.address()}};
  absl::Mutex mu;
  std::vector<WatchUpdate> updates ABSL_GUARDED_BY(mu);
  WatchClient watch{io.get_executor(), client};
};

TEST_CASE("A request whose subscriber comes back at once is not subscribed anew", "[poll]") {
  Watcher watcher;
  watcher.engine.SetQueueState("r1", v1::QUEUE_STATE_ACTIVE);
  watcher.watch.Unsubscribe(watcher.Subscribe());
  CHECK_FALSE(watcher.watch.IsWatchedByOther("r1", "tml-another"));
  watcher.watch.AskAgain(watcher.Subscribe());
  REQUIRE(watcher.AwaitUpdates(1));
  CHECK(watcher.engine.num_calls("WatchSubscribe") == 1);
  watcher.engine.Settle("r1", Stepped(3));
  REQUIRE(watcher.AwaitUpdates(2));
  CHECK(watcher.Updates().size() == 2);
  CHECK(watcher.Updates().back().result != nullptr);
}

TEST_CASE("A later subscriber is checked with its own key", "[poll]") {
  Watcher watcher;
  watcher.engine.SetQueueState("r1", v1::QUEUE_STATE_ACTIVE);
  watcher.watch.Unsubscribe(watcher.Subscribe());
  watcher.Subscribe("tml-another");
  CHECK(watcher.AwaitUpdates(1));  // the engine was asked again
}

TEST_CASE("A result without waiters is kept for later polls", "[poll]") {
  Watcher watcher;
  watcher.engine.SetQueueState("r1", v1::QUEUE_STATE_ACTIVE);
  watcher.watch.Unsubscribe(watcher.Subscribe());
  REQUIRE(watcher.engine.AwaitSubscription("r1"));
  watcher.engine.Settle("r1", Stepped(3));
  watcher.Subscribe();
  REQUIRE(watcher.AwaitUpdates(1));
  CHECK(watcher.Updates().back().result != nullptr);
}

TEST_CASE("An idle stream keeps gRPC's threads awake", "[poll]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  CHECK(engine.AwaitCalls("WatchHeartbeat", 2));
}

TEST_CASE("A large result is fetched once", "[poll]") {
  FakeEngine engine;
  engine.SetInlineResults(false);
  RunningGateway gateway(engine);
  engine.SetQueueState("r1", v1::QUEUE_STATE_ACTIVE);
  HttpClient client(gateway.port());
  client.Send("POST", kPollPath, PollBody("r1"));
  REQUIRE(engine.AwaitSubscription("r1"));
  engine.Settle("r1", Stepped(3));
  CHECK(client.Receive().body == R"({"metrics":{"grad_norm":3.0}})");
  CHECK(engine.num_calls("GetResult") == 1);
  CHECK(engine.num_calls("Watch") == 1);
  // Delivery does not delete the result.
  CHECK(client.Post(kPollPath, PollBody("r1")).body == R"({"metrics":{"grad_norm":3.0}})");
}

TEST_CASE("A pending poll ends as try_again with the latest queue state", "[poll]") {
  FakeEngine engine;
  RunningGateway gateway(engine, HoldFor(absl::Milliseconds(300)));
  engine.SetQueueState("r1", v1::QUEUE_STATE_ACTIVE);
  HttpClient client(gateway.port());
  client.Send("POST", kPollPath, PollBody("r1"));
  REQUIRE(engine.AwaitSubscription("r1"));
  engine.SetQueueState("r1", v1::QUEUE_STATE_PAUSED_RATE_LIMIT);
  const Json answer = Json::parse(client.Receive().body);
  CHECK(answer["type"] == "try_again");
  CHECK(answer["request_id"] == "r1");
  CHECK(answer["queue_state"] == "paused_rate_limit");
  CHECK(answer["queue_state_reason"] == "2 requests are before it");
  CHECK(engine.num_calls("GetResult") == 0);
  CHECK(engine.AwaitUnsubscription("r1"));
}

TEST_CASE("A thousand polls on one connection, one after the other, are all answered", "[poll]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  engine.Settle("r1", Stepped(2));
  HttpClient client(gateway.port());
  int num_answered = 0;
  for (int i = 0; i < 1000; ++i)
    num_answered += client.Post(kPollPath, PollBody("r1")).status == 200;
  CHECK(num_answered == 1000);
}

TEST_CASE("Many polls wait on one stream, two on one request included", "[poll]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 100; ++i) {
    const std::string request_id = absl::StrCat("r", i / 2);
    engine.SetQueueState(request_id, v1::QUEUE_STATE_ACTIVE);
    clients.push_back(std::make_unique<HttpClient>(gateway.port()));
    clients.back()->Send("POST", kPollPath, PollBody(request_id));
  }
  for (int i = 0; i < 50; ++i) REQUIRE(engine.AwaitSubscription(absl::StrCat("r", i)));
  for (int i = 0; i < 50; ++i) engine.Settle(absl::StrCat("r", i), Stepped(i));
  for (int i = 0; i < 100; ++i) {
    CHECK(Json::parse(clients[i]->Receive().body)["metrics"]["grad_norm"] == i / 2);
  }
  CHECK(engine.num_calls("Watch") == 1);
}

TEST_CASE("Unknown requests are 404 and expired ones 410", "[poll]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  HttpClient client(gateway.port());
  CHECK(client.Post(kPollPath, PollBody("nobody")).status == 404);
  CHECK(client.Post(kPollPath, PollBody("expired")).status == 410);
  CHECK(client.Post(kPollPath, R"({"request_id":5})").status == 400);
}

TEST_CASE("A failed request is answered 200 with error and category", "[poll]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  v1::OperationResult result;
  result.set_kind(v1::OPERATION_KIND_FORWARD_BACKWARD);
  result.mutable_error()->set_message("datum 0: token 999 is beyond the vocabulary of 768");
  result.mutable_error()->set_category(v1::ERROR_CATEGORY_USER);
  engine.Settle("r1", result);
  const HttpAnswer answer =
      HttpClient(gateway.port())
          .Exchange("POST", kPollPath, PollBody("r1"), {{"Accept", "application/x-protobuf"}});
  CHECK(answer.status == 200);
  CHECK(answer.headers.at("content-type") == "application/json");
  CHECK(Json::parse(answer.body)["category"] == "user");
}

TEST_CASE("Accept decides between protobuf and JSON where both exist", "[poll]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  v1::OperationResult result;
  result.set_kind(v1::OPERATION_KIND_SAMPLE);
  result.mutable_sample()->add_sequences()->set_stopped(true);
  engine.Settle("r1", result);
  engine.Settle("r2", Stepped(1));
  HttpClient client(gateway.port());
  const auto poll = [&client](const std::string& request_id, const std::string& accept) {
    return client.Exchange("POST", kPollPath, PollBody(request_id), {{"Accept", accept}});
  };
  const HttpAnswer protobuf = poll("r1", "application/x-protobuf, application/json");
  CHECK(protobuf.headers.at("content-type") == "application/x-protobuf");
  tinker_public::SampleResponse sample;
  REQUIRE(sample.ParseFromString(protobuf.body));
  CHECK(sample.sequences(0).stop_reason() == tinker_public::STOP_REASON_STOP);
  CHECK(Json::parse(poll("r1", "application/json").body)["type"] == "sample");
  CHECK(poll("r2", "application/x-protobuf").headers.at("content-type") == "application/json");
}

TEST_CASE("A client that leaves is unsubscribed before its time", "[poll]") {
  FakeEngine engine;
  RunningGateway gateway(engine, HoldFor(absl::Seconds(40)));
  engine.SetQueueState("r1", v1::QUEUE_STATE_ACTIVE);
  HttpClient client(gateway.port());
  client.Send("POST", kPollPath, PollBody("r1"));
  REQUIRE(engine.AwaitSubscription("r1"));
  client.Close();
  CHECK(engine.AwaitUnsubscription("r1"));
}

TEST_CASE("An engine restart is bridged: polls wait and get their results after it", "[poll]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  engine.SetQueueState("r1", v1::QUEUE_STATE_ACTIVE);
  HttpClient before(gateway.port());
  before.Send("POST", kPollPath, PollBody("r1"));
  REQUIRE(engine.AwaitSubscription("r1"));
  engine.StopServing();
  HttpClient during(gateway.port());
  during.Send("POST", kPollPath, PollBody("r1"));
  engine.Settle("r1", Stepped(4));
  engine.StartServing();
  CHECK(before.Receive().body == R"({"metrics":{"grad_norm":4.0}})");
  CHECK(during.Receive().body == R"({"metrics":{"grad_norm":4.0}})");
}

TEST_CASE("Without the engine a poll waits, then gets paused_capacity", "[poll]") {
  FakeEngine engine;
  RunningGateway gateway(engine, HoldFor(absl::Milliseconds(500)));
  HttpClient client(gateway.port());
  client.Post("/api/v1/client/config", "{}");
  engine.StopServing();
  const HttpAnswer answer = client.Post(kPollPath, PollBody("r1"));
  CHECK(answer.status == 200);
  CHECK(Json::parse(answer.body)["queue_state"] == "paused_capacity");
}

TEST_CASE("An engine that hangs does not keep a poll much longer than its hold", "[poll]") {
  FakeEngine engine;
  RunningGateway gateway(engine, HoldFor(absl::Milliseconds(200)));
  engine.SetQueueState("r1", v1::QUEUE_STATE_ACTIVE);
  engine.Settle("r1", Stepped(2));
  engine.SetInlineResults(false);
  engine.SetHangs(true);
  HttpClient client(gateway.port());
  client.Send("POST", kPollPath, PollBody("r1"));
  REQUIRE(engine.AwaitCalls("GetResult", 1));
  // The engine would answer after 10 s.
  const HttpAnswer answer = client.Receive();
  engine.SetHangs(false);
  CHECK(answer.status == 200);
  CHECK(Json::parse(answer.body)["type"] == "try_again");
  CHECK(client.Post(kPollPath, PollBody("r1")).body == R"({"metrics":{"grad_norm":2.0}})");
}

TEST_CASE("A drain answers long polls try_again", "[poll]") {
  FakeEngine engine;
  RunningGateway gateway(engine, HoldFor(absl::Seconds(40)));
  engine.SetQueueState("r1", v1::QUEUE_STATE_ACTIVE);
  HttpClient client(gateway.port());
  client.Send("POST", kPollPath, PollBody("r1"));
  REQUIRE(engine.AwaitSubscription("r1"));
  gateway.Stop();
  const HttpAnswer answer = client.Receive();
  CHECK(Json::parse(answer.body)["type"] == "try_again");
  CHECK(answer.headers.at("connection") == "close");
}

TEST_CASE("A key holds so many polls, other keys and later polls are served", "[poll]") {
  FakeEngine engine;
  GatewayOptions options;
  options.limits.max_polls_per_key = 2;
  RunningGateway gateway(engine, options);
  HttpClient first(gateway.port());
  HttpClient second(gateway.port());
  HttpClient third(gateway.port());
  for (const char* id : {"r1", "r2", "r3"}) engine.SetQueueState(id, v1::QUEUE_STATE_ACTIVE);
  first.Send("POST", kPollPath, PollBody("r1"));
  second.Send("POST", kPollPath, PollBody("r2"));
  REQUIRE(engine.AwaitSubscription("r1"));
  REQUIRE(engine.AwaitSubscription("r2"));
  const HttpAnswer refused = third.Post(kPollPath, PollBody("r3"));
  CHECK(refused.status == 429);
  CHECK(CodeOf(refused) == "too_many_polls");
  CHECK(refused.headers.count("retry-after") == 1);
  engine.Settle("r1", Stepped(1));
  CHECK(first.Receive().status == 200);
  engine.Settle("r3", Stepped(3));
  CHECK(third.Post(kPollPath, PollBody("r3")).status == 200);
}

}  // namespace
}  // namespace lathe::gateway
