#include "services/api-gateway/json/trace_json.h"

#include <catch2/catch.hpp>

#include "services/api-gateway/json/parse_json.h"

namespace lathe::gateway {
namespace {

constexpr int64_t kBegin = 1'700'000'000'000'000'000;

v1::RequestSpan& AddSpan(v1::OpenTraceResponse& trace, const std::string& owner, int64_t begin) {
  v1::RequestSpan& span = *trace.add_spans();
  span.set_request_id("r" + std::to_string(trace.spans_size()));
  span.set_owner_id(owner);
  span.set_operation("sample");
  span.set_accepted_unix_nanos(begin);
  span.set_durable_unix_nanos(begin + 1'000);
  return span;
}

v1::OpenTraceResponse EmptyTrace() {
  v1::OpenTraceResponse trace;
  trace.set_session_id("s");
  trace.mutable_read_at()->set_seconds(kBegin / 1'000'000'000 + 60);
  return trace;
}

// Returns phase, name and time of every event of request `id`, such as "b sample 0.000".
std::vector<std::string> EdgesOf(const Json& document, int id) {
  std::vector<std::string> edges;
  for (const Json& event : document["traceEvents"]) {
    if (event.value("id", 0) != id) continue;
    char ts[32];
    snprintf(ts, sizeof(ts), "%.3f", event["ts"].get<double>());
    edges.push_back(event["ph"].get<std::string>() + " " + event["name"].get<std::string>() + " " +
                    ts);
  }
  return edges;
}

TEST_CASE("TraceToJson: a request is a slice with its stages inside", "[json]") {
  v1::OpenTraceResponse trace = EmptyTrace();
  v1::RequestSpan& span = AddSpan(trace, "s:sample:0", kBegin);
  span.set_dispatched_unix_nanos(kBegin + 2'500);
  span.set_executed_unix_nanos(kBegin + 9'000'000);
  span.set_completed_unix_nanos(kBegin + 9'100'000);
  span.set_delivered_unix_nanos(kBegin + 9'200'000);
  span.set_outcome("ok");
  const Json document = Json::parse(TraceToJson(trace));
  CHECK(EdgesOf(document, 1) ==
        std::vector<std::string>{"b sample 0.000", "b accept 0.000", "e accept 1.000",
                                 "b queued 1.000", "e queued 2.500", "b on worker 2.500",
                                 "e on worker 9000.000", "b commit 9000.000", "e commit 9100.000",
                                 "b deliver 9100.000", "e deliver 9200.000", "e sample 9200.000"});
  const Json& request = document["traceEvents"][1];
  CHECK(request["cat"] == "request");
  CHECK(request["args"]["outcome"] == "ok");
  CHECK(document["otherData"]["begins_at"] == "2023-11-14T22:13:20Z");
  CHECK_FALSE(document["otherData"].contains("missing"));
}

TEST_CASE("TraceToJson: models and samplers are processes, named once", "[json]") {
  v1::OpenTraceResponse trace = EmptyTrace();
  for (const char* owner : {"s", "s:train:0", "s:sample:0", "s:train:0"}) {
    AddSpan(trace, owner, kBegin);
  }
  std::vector<std::string> names;
  std::vector<int> processes;
  const Json document = Json::parse(TraceToJson(trace));
  for (const Json& event : document["traceEvents"]) {
    if (event["ph"] == "M") names.push_back(event["args"]["name"]);
    if (event["ph"] == "b" && event["name"] == "sample") processes.push_back(event["pid"]);
  }
  CHECK(names == std::vector<std::string>{"session s", "model s:train:0", "sampler s:sample:0"});
  CHECK(processes == std::vector<int>{1, 2, 3, 2});
}

TEST_CASE("TraceToJson: what ended early or has not ended is in the stage it was in", "[json]") {
  v1::OpenTraceResponse trace = EmptyTrace();
  AddSpan(trace, "s", kBegin).set_completed_unix_nanos(kBegin + 5'000);
  AddSpan(trace, "s", kBegin).set_dispatched_unix_nanos(kBegin + 2'000);
  const Json document = Json::parse(TraceToJson(trace));
  CHECK(EdgesOf(document, 1) == std::vector<std::string>{"b sample 0.000", "b accept 0.000",
                                                         "e accept 1.000", "b queued 1.000",
                                                         "e queued 5.000", "e sample 5.000"});
  const std::vector<std::string> running = EdgesOf(document, 2);
  REQUIRE(running.size() == 8);
  CHECK(running[5] == "b on worker 2.000");
  CHECK(running[7] == "e sample 60000000.000");
}

TEST_CASE("TraceToJson: a delivered request needs no time of completion", "[json]") {
  v1::OpenTraceResponse trace = EmptyTrace();
  AddSpan(trace, "s", kBegin).set_delivered_unix_nanos(kBegin + 5'000);
  CHECK(EdgesOf(Json::parse(TraceToJson(trace)), 1) ==
        std::vector<std::string>{"b sample 0.000", "b accept 0.000", "e accept 1.000",
                                 "b queued 1.000", "e queued 5.000", "e sample 5.000"});
}

TEST_CASE("TraceToJson: says which requests may be missing, first and at the end", "[json]") {
  v1::OpenTraceResponse trace = EmptyTrace();
  trace.mutable_complete_since()->set_seconds(kBegin / 1'000'000'000);
  const Json document = Json::parse(TraceToJson(trace));
  const std::string note = document["traceEvents"][0]["name"];
  CHECK(note.find("requests accepted up to 2023-11-14T22:13:20Z may be missing") == 0);
  CHECK(document["traceEvents"][0]["ph"] == "i");
  CHECK(document["otherData"]["missing"] == note);
}

TEST_CASE("RunRequestsToJson: the seconds of each stage", "[json]") {
  v1::OpenTraceResponse spans;
  AddSpan(spans, "s:train:0", kBegin).set_dispatched_unix_nanos(kBegin + 3'000'000'000);
  AddSpan(spans, "s:train:0", kBegin).set_delivered_unix_nanos(kBegin + 5'000'000'000);
  v1::ListRunRequestsResponse answer;
  *answer.mutable_requests() = spans.spans();
  answer.mutable_read_at()->set_seconds(kBegin / 1'000'000'000 + 4);
  const Json json = RunRequestsToJson(answer);
  CHECK(json["complete_since"] == nullptr);
  const Json& running = json["requests"][0];
  CHECK(running["operation"] == "sample");
  CHECK(running["outcome"] == "unfinished");
  CHECK(running["seconds"].get<double>() == Approx(4));
  REQUIRE(running["stages"].size() == 3);
  CHECK(running["stages"][1]["name"] == "queued");
  CHECK(running["stages"][2]["name"] == "on worker");
  CHECK(running["stages"][2]["seconds"].get<double>() == Approx(1));
  CHECK(json["requests"][1]["seconds"].get<double>() == Approx(5));
  answer.mutable_complete_since()->set_seconds(kBegin / 1'000'000'000);
  CHECK(RunRequestsToJson(answer)["complete_since"] == "2023-11-14T22:13:20Z");
}

}  // namespace
}  // namespace lathe::gateway
