#include "services/api-gateway/json/events_json.h"

#include <catch2/catch.hpp>

#include "services/api-gateway/json/parse_json.h"

namespace lathe::gateway {
namespace {

TEST_CASE("Events: points are on one line and read back exactly", "[json]") {
  v1::FeedEvent event;
  event.mutable_points()->set_training_run_id("r:train:0");
  v1::NewPoints& series = *event.mutable_points()->add_series();
  series.set_name("reward/mean");
  series.set_count(9);
  series.add_steps(8);
  series.add_times_ms(1767323045000);
  series.add_values(0.1);
  CHECK(NameOf(TopicOf(event)) == "metrics");
  const std::string data = EventData(event);
  CHECK(data.find('\n') == std::string::npos);
  const Json json = Json::parse(data);
  CHECK(json["run_id"] == "r:train:0");
  CHECK(json["is_incomplete"] == false);
  CHECK(json["series"][0] == Json({{"name", "reward/mean"},
                                   {"unit", ""},
                                   {"count", 9},
                                   {"steps", {8}},
                                   {"times_ms", {1767323045000}},
                                   {"values", {0.1}}}));
}

TEST_CASE("Events: a text with line breaks cannot end the event", "[json]") {
  v1::FeedEvent event;
  v1::GroupState& group = *event.mutable_groups()->add_groups();
  group.set_group("default");
  group.set_state("degraded");
  group.set_reason("first\n\ndata: {}\r\n\xff");
  CHECK(NameOf(TopicOf(event)) == "workers");
  const std::string data = EventData(event);
  CHECK(data.find_first_of("\r\n") == std::string::npos);
  CHECK(Json::parse(data)["groups"][0]["state"] == "degraded");
}

TEST_CASE("Events: runs, checkpoints and queues have their own topics", "[json]") {
  v1::FeedEvent runs;
  runs.mutable_runs()->add_training_run_ids("a");
  CHECK(EventData(runs) == R"({"has_more":false,"run_ids":["a"]})");
  v1::FeedEvent checkpoints;
  checkpoints.mutable_checkpoints()->set_has_more(true);
  CHECK(TopicOf(checkpoints) == EventTopic::kCheckpoints);
  CHECK(EventData(checkpoints) == R"({"has_more":true,"run_ids":[]})");
  v1::FeedEvent queues;
  v1::OperationQueue& queue = *queues.mutable_queues()->add_own();
  queue.set_operation("sample");
  queue.set_waiting(2);
  CHECK(EventData(queues) ==
        R"({"all":[],"own":[{"operation":"sample","running":0,"waiting":2}]})");
}

}  // namespace
}  // namespace lathe::gateway
