// Tests retrieve_futures over real sockets.
#include <catch2/catch.hpp>

#include "services/api-gateway/json/parse_json.h"
#include "services/api-gateway/testing/checks.h"
#include "services/api-gateway/testing/fake_engine.h"
#include "services/api-gateway/testing/http_client.h"
#include "services/api-gateway/testing/running_gateway.h"

namespace lathe::gateway {
namespace {

constexpr char kPath[] = "/api/v1/retrieve_futures";
constexpr char kPoll[] =
    R"({"target":{"type":"sampling_session","sampling_session_id":"s1","cloned_sampler_id":2},)"
    R"("prev_cursor":4,"retrieved_request_ids":["r0"]})";

v1::AwaitSamplesResponse Ended(const std::string& request_id, int64_t cursor) {
  v1::AwaitSamplesResponse response;
  response.add_samples()->set_request_id(request_id);
  response.set_cursor(cursor);
  return response;
}

TEST_CASE("A poll for all samples is held until one has ended", "[poll]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  HttpClient client(gateway.port());
  client.Send("POST", kPath, kPoll);
  REQUIRE(engine.AwaitCalls("AwaitSamples", 1));
  engine.SetEndedSamples(Ended("r1", 7));
  const Json answer = Json::parse(client.Receive().body);
  CHECK(answer["completions"][0]["request_id"] == "r1");
  CHECK(answer["cursor"] == 7);
  const v1::AwaitSamplesRequest question = engine.last_await_samples();
  CHECK(question.sampling_session_id() == "s1");
  CHECK(question.clone_number() == 2);
  CHECK(question.cursor() == 4);
  CHECK(question.retrieved_request_ids(0) == "r0");
}

TEST_CASE("A poll for samples of which none ends answers an empty list and its cursor", "[poll]") {
  FakeEngine engine;
  RunningGateway gateway(engine, HoldFor(absl::Milliseconds(50)));
  CHECK(HttpClient(gateway.port()).Post(kPath, kPoll).body == R"({"completions":[],"cursor":4})");
}

TEST_CASE("A poll for samples that is only a report waits for nothing", "[poll]") {
  FakeEngine engine;
  RunningGateway gateway(engine, HoldFor(absl::Seconds(40)));
  const HttpAnswer answer = HttpClient(gateway.port())
                                .Post(kPath, R"({"target":{"sampling_session_id":"s1"},)"
                                             R"("prev_cursor":6,"timeout":0.0})");
  CHECK(answer.body == R"({"completions":[],"cursor":6})");
  CHECK(engine.last_await_samples().wait_ms() == 0);
}

TEST_CASE("A poll for samples whose client leaves ends in the engine too", "[poll]") {
  FakeEngine engine;
  RunningGateway gateway(engine, HoldFor(absl::Seconds(40)));
  HttpClient client(gateway.port());
  client.Send("POST", kPath, kPoll);
  REQUIRE(engine.AwaitCalls("AwaitSamples", 1));
  client.Close();
  CHECK(engine.AwaitCalls("AwaitSamplesCancelled", 1));
}

TEST_CASE("A drain answers long polls for samples with an empty list", "[poll]") {
  FakeEngine engine;
  RunningGateway gateway(engine, HoldFor(absl::Seconds(40)));
  HttpClient client(gateway.port());
  client.Send("POST", kPath, kPoll);
  REQUIRE(engine.AwaitCalls("AwaitSamples", 1));
  gateway.Stop();
  const HttpAnswer answer = client.Receive();
  CHECK(answer.status == 200);
  CHECK(answer.body == R"({"completions":[],"cursor":4})");
}

TEST_CASE("With the engine away a poll for samples is a 503, which clients try again", "[poll]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  HttpClient client(gateway.port());
  client.Post("/api/v1/client/config", "{}");
  engine.StopServing();
  CHECK(client.Post(kPath, kPoll).status == 503);
}

TEST_CASE("What the engine refuses of a poll for samples is a 400", "[poll]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  HttpClient client(gateway.port());
  CHECK(client.Post(kPath, R"({"target":{"sampling_session_id":"s1"},"prev_cursor":-1})").status ==
        400);
  CHECK(client.Post(kPath, R"({"target":{}})").status == 400);
}

TEST_CASE("Clients are asked to poll for all samples at once, unless that is switched off",
          "[poll]") {
  const bool is_on = GENERATE(true, false);
  FakeEngine engine;
  GatewayOptions options;
  options.routes.retrieve_futures = is_on;
  RunningGateway gateway(engine, options);
  const Json config =
      Json::parse(HttpClient(gateway.port()).Post("/api/v1/client/config", "{}").body);
  CHECK(config["sample_use_retrieve_futures"] == is_on);
}

}  // namespace
}  // namespace lathe::gateway
