#include "services/engine/runtime/queue_description.h"

#include <catch2/catch.hpp>

namespace lathe::engine {
namespace {

TEST_CASE("DescribeQueue: what a request waits for, its place, and for how long", "[runtime]") {
  struct Case {
    QueuePlace place;
    std::string words;
  };
  const auto [place, words] = GENERATE(table<QueuePlace, std::string>({
      {QueuePlace{}, "waiting for its turn"},
      {QueuePlace{.is_running = true}, "with a worker"},
      {QueuePlace{.is_running = true, .seconds = 2.4}, "with a worker; about 2 s"},
      {QueuePlace{.requests_before = 1}, "waiting for its turn; 1 request is before it"},
      {QueuePlace{.requests_before = 3, .tokens_before = 5120, .seconds = 4.2},
       "waiting for its turn; 3 requests with 5120 tokens are before it; about 4 s"},
      {QueuePlace{.missing_seq = 7, .gap_closes_in = 210'500'000'000, .seconds = 4},
       "waiting for seq 7, which has not arrived; without it in 211 s"},
      {QueuePlace{.after_kind = OperationKind::kOptimStep, .after_seq = 12, .requests_before = 2},
       "waiting for optim_step seq 12 of its model; 2 requests are before it"},
  }));
  const QueueStatus status = DescribeQueue({}, place);
  CHECK(status.reason == words);
  CHECK_FALSE(status.paused);
}

TEST_CASE("DescribeQueue: without a worker its reason comes first, and no time is given",
          "[runtime]") {
  const QueueStatus status = DescribeQueue({.paused = true, .reason = "tiny is loading"},
                                           QueuePlace{.requests_before = 2, .seconds = 9});
  CHECK(status.paused);
  CHECK(status.reason == "tiny is loading; 2 requests are before it");
}

TEST_CASE("DescribeQueue: a model in recovery pauses its requests", "[runtime]") {
  const QueueStatus status = DescribeQueue({}, QueuePlace{.is_model_away = true});
  CHECK(status.paused);
  CHECK(status.reason == "its model is being recovered onto a worker");
}

TEST_CASE("DescribeQueue: what holds its model up is said of a request that waits", "[runtime]") {
  const std::string why = "its model is being moved to another group";
  const QueueStatus alone = DescribeQueue({}, QueuePlace{.model_reason = why});
  CHECK(alone.paused);
  CHECK(alone.reason == why);
  const QueueStatus group{.paused = true, .reason = "waiting for a worker of tiny"};
  CHECK(DescribeQueue(group, QueuePlace{.model_reason = why}).reason ==
        "waiting for a worker of tiny; " + why);
  CHECK_FALSE(DescribeQueue({}, QueuePlace{.is_running = true, .model_reason = why}).paused);
}

TEST_CASE("DescribeQueue: of an unknown request only its group is described", "[runtime]") {
  CHECK(DescribeQueue({.paused = true, .reason = "gone"}, std::nullopt).reason == "gone");
  CHECK(DescribeQueue({}, std::nullopt).reason.empty());
}

}  // namespace
}  // namespace lathe::engine
