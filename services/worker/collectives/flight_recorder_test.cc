#include "services/worker/collectives/flight_recorder.h"

#include <catch2/catch.hpp>

namespace lathe::worker {
namespace {

using Catch::Matchers::Contains;

FlightRecorder::Id Record(FlightRecorder& recorder, int64_t number, std::string_view name) {
  return recorder.Queued({.axis = "tp",
                          .number = number,
                          .kind = "all-reduce sum",
                          .name = name,
                          .dtype = "Float",
                          .num_elements = 4096});
}

}  // namespace

TEST_CASE("Flight recorder: a dump says how far each collective has come", "[collectives]") {
  FlightRecorder recorder;
  const auto done = Record(recorder, 1, "layers.0.o");
  recorder.Started(done);
  recorder.Done(done);
  const auto failed = Record(recorder, 2, "layers.0.down");
  recorder.Started(failed);
  recorder.Failed(failed);
  recorder.Started(Record(recorder, 3, "layers.1.o"));
  Record(recorder, 4, "layers.1.down");
  const std::string dump = recorder.Dump();
  CHECK_THAT(dump, Contains("the last 4 of 4 collectives, oldest first\n"));
  CHECK_THAT(dump, Catch::Matchers::Matches(
                       "(.|\n)* tp #1 all-reduce sum layers.0.o Float x 4096 started \\+\\S+s done "
                       "\\+\\S+s\n(.|\n)* tp #2 all-reduce sum layers.0.down Float x 4096 started "
                       "\\+\\S+s failed \\+\\S+s\n(.|\n)* tp #3 all-reduce sum layers.1.o Float x "
                       "4096 started \\+\\S+s\n(.|\n)* tp #4 all-reduce sum layers.1.down Float x "
                       "4096 queued\n"));
}

TEST_CASE("Flight recorder: the oldest make room, and late updates of them are dropped",
          "[collectives]") {
  FlightRecorder recorder(3);
  const auto first = Record(recorder, 1, "first");
  for (int number = 2; number <= 5; ++number) Record(recorder, number, "later");
  recorder.Done(first);
  const std::string dump = recorder.Dump();
  CHECK_THAT(dump, Contains("the last 3 of 5 collectives") && !Contains("first ") &&
                       !Contains("#2 ") && Contains("#3 ") && Contains("#5 ") && !Contains("done"));
}

TEST_CASE("Flight recorder: long names are cut", "[collectives]") {
  FlightRecorder recorder;
  Record(recorder, 1, std::string(200, 'n'));
  CHECK_THAT(recorder.Dump(), Contains(" " + std::string(63, 'n') + " Float"));
}

}  // namespace lathe::worker
