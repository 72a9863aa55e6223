#include "tools/lathe/top/top_source.h"

#include <catch2/catch.hpp>

namespace lathe::cli {
namespace {

Json SomeRequest(int seq_id, const char* outcome) {
  return {{"operation", "optim_step"},
          {"seq_id", seq_id},
          {"outcome", outcome},
          {"seconds", 3.4},
          {"stages", {{{"name", "accept"}, {"seconds", 0}}, {{"name", "queued"}, {"seconds", 3}}}}};
}

TEST_CASE("A run waits for the oldest of its requests", "[top]") {
  v1::ModelStatus run;
  SetRequests({{"requests",
                {SomeRequest(4, "unfinished"), SomeRequest(3, "unfinished"), SomeRequest(2, "ok"),
                 SomeRequest(1, "ok")}}},
              run);
  CHECK(run.pending_requests() == 2);
  CHECK(run.applied_seq() == 2);
  CHECK(run.reason() == "optim_step seq 3: queued, 3 s");
}

TEST_CASE("A run without requests waits for nothing", "[top]") {
  v1::ModelStatus run;
  SetRequests({{"requests", Json::array()}}, run);
  SetRequests("nonsense", run);
  CHECK(run.pending_requests() == 0);
  CHECK(run.reason().empty());
}

}  // namespace
}  // namespace lathe::cli
