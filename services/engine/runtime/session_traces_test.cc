#include "services/engine/runtime/session_traces.h"

#include <catch2/catch.hpp>

namespace lathe::engine {
namespace {

RequestRow Row(const std::string& id, const std::string& owner, int64_t at) {
  RequestRow row;
  row.request_id = id;
  row.owner_id = owner;
  row.accepted_at = at;
  return row;
}

std::vector<std::string> IdsOf(const SessionTraces::Trace& trace) {
  std::vector<std::string> ids;
  for (const RequestSpan& span : trace.spans) ids.push_back(span.request_id);
  return ids;
}

TEST_CASE("SessionTraces: a span has the stages of its request", "[runtime]") {
  SessionTraces traces({}, /*began_at=*/5);
  traces.OnAccepted(Row("r1", "s:train:0", 10));
  traces.OnDurable("r1", 11);
  traces.OnDispatched("r1", "default", /*num_batch_requests=*/3, 12);
  traces.OnExecuted("r1", 13);
  traces.SetOutcome("r1", Outcome::kUserError);
  CHECK(traces.OnCompleted("r1", 14)->executed_at == 13);
  traces.OnDelivered("r1", 15);
  traces.OnDelivered("r1", 16);
  const SessionTraces::Trace trace = traces.Read("s");
  REQUIRE(trace.spans.size() == 1);
  const RequestSpan& span = trace.spans[0];
  CHECK(std::vector<int64_t>{span.accepted_at, span.durable_at, span.dispatched_at,
                             span.executed_at, span.completed_at,
                             span.delivered_at} == std::vector<int64_t>{10, 11, 12, 13, 14, 15});
  CHECK(span.group == "default");
  CHECK(span.num_batch_requests == 3);
  CHECK(span.outcome == Outcome::kUserError);
  CHECK(trace.complete_since == 5);
}

TEST_CASE("SessionTraces: a sampled span keeps its context and its tenant", "[runtime]") {
  SessionTraces traces({}, 0);
  RequestRow row = Row("r1", "s", 10);
  row.tenant_id = "t1";
  traces.OnAccepted(row, {.span_id = 7, .is_sampled = true});
  CHECK(traces.OnCompleted("r1", 14)->context.span_id == 7);
  const auto delivered = traces.OnDelivered("r1", 15);
  REQUIRE(delivered);
  CHECK(delivered->tenant_id == "t1");
  CHECK(delivered->delivered_at == 15);
  CHECK_FALSE(traces.OnDelivered("r1", 16));

  row.request_id = "r2";
  traces.OnAccepted(row, {.span_id = 8, .is_sampled = false});
  CHECK(traces.OnCompleted("r2", 14)->tenant_id.empty());
  CHECK_FALSE(traces.OnDelivered("r2", 15));
}

TEST_CASE("SessionTraces: a request that is dispatched again shows the last time", "[runtime]") {
  SessionTraces traces({}, 0);
  traces.OnAccepted(Row("r1", "s", 10));
  traces.OnDispatched("r1", "default", 0, 12);
  traces.OnDispatched("r1", "default", 0, 22);
  CHECK(traces.Read("s").spans[0].dispatched_at == 22);
  CHECK(traces.Read("s").spans[0].num_dispatches == 2);
  CHECK(traces.Loads().at(OperationKind::kForwardBackward).num_running == 1);
}

TEST_CASE("SessionTraces: the newest spans of one owner, from a bounded number of them",
          "[runtime]") {
  SessionTraces traces({.max_spans_per_read = 4}, /*began_at=*/1);
  for (int i = 2; i <= 7; ++i) {
    traces.OnAccepted(Row("r" + std::to_string(i), i % 2 == 0 ? "s:train:0" : "s:sample:0", i));
  }
  const SessionTraces::Trace all = traces.ReadNewest("s:train:0", 10);
  CHECK(IdsOf(all) == std::vector<std::string>{"r6", "r4"});
  CHECK(all.complete_since == 3);
  const SessionTraces::Trace one = traces.ReadNewest("s:train:0", 1);
  CHECK(IdsOf(one) == std::vector<std::string>{"r6"});
  CHECK(one.complete_since == 5);
  CHECK(traces.ReadNewest("s:train:1", 10).spans.empty());
  CHECK(traces.ReadNewest("t:train:0", 10).complete_since == 1);
}

TEST_CASE("SessionTraces: a session's oldest spans make room, and the trace says since when",
          "[runtime]") {
  SessionTraces traces({.max_spans_per_session = 2, .max_spans = 100}, /*began_at=*/1);
  for (int i = 2; i <= 5; ++i) traces.OnAccepted(Row("r" + std::to_string(i), "s:sample:0", i));
  traces.OnAccepted(Row("other", "t:train:0", 6));
  CHECK(IdsOf(traces.Read("s")) == std::vector<std::string>{"r4", "r5"});
  CHECK(traces.Read("s").complete_since == 3);
  CHECK(traces.Read("t").complete_since == 1);
}

TEST_CASE("SessionTraces: the oldest of all sessions make room in all", "[runtime]") {
  SessionTraces traces({.max_spans_per_session = 2, .max_spans = 3}, /*began_at=*/1);
  traces.OnAccepted(Row("a", "s", 2));
  for (int i = 3; i <= 5; ++i)
    traces.OnAccepted(Row(std::to_string(i), "t" + std::to_string(i), i));
  CHECK(traces.Read("s").spans.empty());
  CHECK(traces.Read("s").complete_since == 2);
  CHECK(IdsOf(traces.Read("t3")) == std::vector<std::string>{"3"});
  // Later events of a dropped request have no effect.
  traces.OnDurable("a", 9);
  CHECK_FALSE(traces.OnCompleted("a", 9));
}

TEST_CASE("SessionTraces: unfinished requests are counted where they are", "[runtime]") {
  SessionTraces traces({.max_spans_per_session = 3, .max_spans = 100}, 0);
  for (const char* id : {"a", "b", "c"}) traces.OnAccepted(Row(id, "s", 1));
  traces.OnDispatched("a", "default", 0, 2);
  traces.OnDispatched("b", "default", 0, 2);
  traces.OnCompleted("b", 3);
  SessionTraces::Load load = traces.Loads().at(OperationKind::kForwardBackward);
  CHECK(load.num_waiting == 1);
  CHECK(load.num_running == 1);
  // The new span replaces that of "a"; "d" waits.
  traces.OnAccepted(Row("d", "s", 4));
  load = traces.Loads().at(OperationKind::kForwardBackward);
  CHECK(load.num_waiting == 2);
  CHECK(load.num_running == 0);
}

}  // namespace
}  // namespace lathe::engine
