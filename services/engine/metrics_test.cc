#include "services/engine/metrics.h"

#include <prometheus/text_serializer.h>

#include <catch2/catch.hpp>
#include <string>

namespace lathe::engine {
namespace {

std::string PageOf(const EngineMetrics& metrics) {
  return prometheus::TextSerializer().Serialize(metrics.registry()->Collect());
}

RequestSpan Span(OperationKind kind, Outcome outcome) {
  RequestSpan span;
  span.kind = kind;
  span.outcome = outcome;
  span.tokens = 7;
  span.accepted_at = 1'000'000'000;
  span.durable_at = 1'001'000'000;
  span.completed_at = 4'000'000'000;
  return span;
}

TEST_CASE("EngineMetrics: a request counts by operation and outcome", "[metrics]") {
  EngineMetrics metrics;
  const Runtime::Options::Observers observers = metrics.MakeObservers();
  RequestSpan span = Span(OperationKind::kSample, Outcome::kOk);
  span.dispatched_at = 1'501'000'000;
  span.executed_at = 3'501'000'000;
  observers.on_request_completed(span);
  const std::string page = PageOf(metrics);
  for (const char* line :
       {"lathe_engine_requests_total{operation=\"sample\",outcome=\"ok\"} 1\n",
        "lathe_engine_requests_total{operation=\"sample\",outcome=\"user_error\"} 0\n",
        "lathe_engine_request_tokens_total{operation=\"sample\"} 7\n",
        "lathe_engine_request_queue_seconds_sum{operation=\"sample\"} 0.5\n",
        "lathe_engine_request_execute_seconds_sum{operation=\"sample\"} 2\n",
        "lathe_engine_request_seconds_sum{operation=\"sample\"} 3\n"}) {
    INFO(line);
    CHECK(page.find(line) != std::string::npos);
  }
}

TEST_CASE("EngineMetrics: a request that no worker got has no time at a worker", "[metrics]") {
  EngineMetrics metrics;
  metrics.MakeObservers().on_request_completed(
      Span(OperationKind::kForwardBackward, Outcome::kUserError));
  const std::string page = PageOf(metrics);
  CHECK(page.find("lathe_engine_requests_total{operation=\"forward_backward\",outcome=\"user_"
                  "error\"} 1\n") != std::string::npos);
  CHECK(page.find("lathe_engine_request_queue_seconds_count{operation=\"forward_backward\"} 0\n") !=
        std::string::npos);
}

TEST_CASE("EngineMetrics: batches and transactions are measured", "[metrics]") {
  EngineMetrics metrics;
  const Runtime::Options::Observers observers = metrics.MakeObservers();
  observers.on_train_batch(3);
  observers.on_commit(absl::Milliseconds(250), 12);
  const std::string page = PageOf(metrics);
  CHECK(page.find("lathe_engine_batch_requests_sum 3\n") != std::string::npos);
  CHECK(page.find("lathe_engine_commit_seconds_sum 0.25\n") != std::string::npos);
  CHECK(page.find("lathe_engine_commit_writes_bucket{le=\"16\"} 1\n") != std::string::npos);
}

}  // namespace
}  // namespace lathe::engine
