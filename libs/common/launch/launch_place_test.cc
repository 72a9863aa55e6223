#include "libs/common/launch/launch_place.h"

#include <catch2/catch.hpp>
#include <map>
#include <string>

namespace lathe {
namespace {

absl::StatusOr<std::optional<LaunchPlace>> Find(const std::map<std::string, std::string>& env) {
  return FindLaunchPlace([&](const char* name) -> const char* {
    const auto found = env.find(name);
    return found == env.end() ? nullptr : found->second.c_str();
  });
}

TEST_CASE("LaunchPlace: without a launcher there is none", "[launch]") {
  const auto place = Find({{"WORLD_SIZE", "2"}});
  REQUIRE(place.ok());
  CHECK_FALSE(place->has_value());
}

TEST_CASE("LaunchPlace: torchrun, LeaderWorkerSet and indexed jobs", "[launch]") {
  const LaunchPlace torchrun =
      Find({{"RANK", "5"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}})->value();
  CHECK(torchrun.rank == 5);
  CHECK(torchrun.world == 8);
  CHECK(torchrun.local_rank == 1);
  const LaunchPlace lws = Find({{"LWS_WORKER_INDEX", "3"}, {"LWS_GROUP_SIZE", "4"}})->value();
  CHECK(lws.rank == 3);
  CHECK(lws.world == 4);
  CHECK(lws.local_rank == 0);
  const LaunchPlace job = Find({{"JOB_COMPLETION_INDEX", "2"}})->value();
  CHECK(job.rank == 2);
  CHECK(job.world == 0);
}

TEST_CASE("LaunchPlace: what a deployment says wins over what a controller sets", "[launch]") {
  const LaunchPlace pod =
      Find({{"JOB_COMPLETION_INDEX", "2"}, {"LATHE_POD_INDEX", "1"}, {"LATHE_POD_COUNT", "3"}})
          ->value();
  CHECK(pod.rank == 1);
  CHECK(pod.world == 3);
  CHECK(Find({{"LATHE_POD_INDEX", "3"}, {"LATHE_POD_COUNT", "3"}}).status().message() ==
        "LATHE_POD_INDEX is '3', want 0 to 2");
  CHECK(Find({{"LATHE_POD_INDEX", "0"}}).status().message() ==
        "LATHE_POD_INDEX is 0, and LATHE_POD_COUNT is missing");
}

TEST_CASE("LaunchPlace: an impossible value is named, with its bound", "[launch]") {
  CHECK(Find({{"RANK", "2"}, {"WORLD_SIZE", "2"}}).status().message() ==
        "RANK is '2', want 0 to 1");
  CHECK(Find({{"RANK", "0"}}).status().message() == "RANK is 0, and WORLD_SIZE is missing");
  CHECK(Find({{"LWS_WORKER_INDEX", "one"}, {"LWS_GROUP_SIZE", "2"}}).status().message() ==
        "LWS_WORKER_INDEX is 'one', want 0 to 1");
  CHECK(Find({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}}).status().message() ==
        "LOCAL_RANK is '1', want 0 to 0");
}

}  // namespace
}  // namespace lathe
