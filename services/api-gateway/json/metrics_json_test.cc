#include "services/api-gateway/json/metrics_json.h"

#include <catch2/catch.hpp>
#include <limits>
#include <string>

namespace lathe::gateway {
namespace {

absl::Status ErrorOf(const std::string& body) { return ReadBody(body, kAppendMetrics).status(); }

TEST_CASE("Points of a call are read with their times", "[json]") {
  const auto request =
      ReadBody(R"({"points": [{"name": "reward/mean", "value": 0.83, "step": 12,)"
               R"( "time": "2026-01-02T03:04:05.5Z"}, {"name": "kl", "value": -1, "step": 0}]})",
               kAppendMetrics);
  INFO(request.status());
  REQUIRE(request.ok());
  REQUIRE(request->points_size() == 2);
  CHECK(request->points(0).name() == "reward/mean");
  CHECK(request->points(0).value() == 0.83);
  CHECK(request->points(0).step() == 12);
  CHECK(request->points(0).time().nanos() == 500'000'000);
  CHECK(request->points(1).value() == -1);
  CHECK_FALSE(request->points(1).has_time());
}

TEST_CASE("Points without a name, value or step are refused", "[json]") {
  CHECK(ErrorOf("{}").message().find("points") != absl::string_view::npos);
  CHECK_FALSE(ErrorOf(R"({"points": []})").ok());
  CHECK_FALSE(ErrorOf(R"({"points": [{"value": 1, "step": 1}]})").ok());
  CHECK_FALSE(ErrorOf(R"({"points": [{"name": "a", "step": 1}]})").ok());
  CHECK_FALSE(ErrorOf(R"({"points": [{"name": "a", "value": null, "step": 1}]})").ok());
  CHECK_FALSE(ErrorOf(R"({"points": [{"name": "a", "value": NaN, "step": 1}]})").ok());
  CHECK_FALSE(ErrorOf(R"({"points": [{"name": "a", "value": 1}]})").ok());
  CHECK_FALSE(ErrorOf(R"({"points": [{"name": "a", "value": 1, "step": 1.5}]})").ok());
  CHECK_FALSE(
      ErrorOf(R"({"points": [{"name": "a", "value": 1, "step": 1, "time": "soon"}]})").ok());
  std::string many = R"({"points": [)";
  for (int i = 0; i < 1001; ++i) {
    if (i > 0) many += ",";
    many += R"({"name": "a", "value": 1, "step": 1})";
  }
  CHECK(ErrorOf(many + "]}").message().find("1000") != absl::string_view::npos);
}

TEST_CASE("Metrics are written as JSON that reads back exactly", "[json]") {
  v1::QueryMetricsResponse response;
  response.set_training_run_id("s:train:0");
  v1::MetricSeries& series = *response.add_series();
  series.set_name("loss:mean");
  series.set_count(3);
  series.set_last_step(9);
  series.set_last_value(0.1);
  series.mutable_last_time()->set_seconds(1);
  series.add_steps(9);
  series.add_times_ms(1000);
  series.add_min(std::numeric_limits<double>::denorm_min());
  series.add_max(std::numeric_limits<double>::max());
  series.add_mean(1.0 / 3);
  series.add_counts(3);
  const Json json = Json::parse(MetricsToJson(response, /*has_buckets=*/true));
  CHECK(json["run_id"] == "s:train:0");
  CHECK(json["more_names"] == false);
  const Json& one = json["series"][0];
  CHECK(one["name"] == "loss:mean");
  CHECK(one["unit"] == "");
  CHECK(one["last_time"] == "1970-01-01T00:00:01Z");
  CHECK(one["last_value"] == 0.1);
  CHECK(one["level"] == 0);
  CHECK(one["steps"] == Json::array({9}));
  CHECK(one["min"][0].get<double>() == std::numeric_limits<double>::denorm_min());
  CHECK(one["max"][0].get<double>() == std::numeric_limits<double>::max());
  CHECK(one["mean"][0].get<double>() == 1.0 / 3);
  CHECK(one["counts"] == Json::array({3}));

  const Json heads = Json::parse(MetricsToJson(response, /*has_buckets=*/false));
  CHECK_FALSE(heads["series"][0].contains("steps"));
  CHECK(heads["series"][0]["count"] == 3);
}

}  // namespace
}  // namespace lathe::gateway
