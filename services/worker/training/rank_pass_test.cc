#include "services/worker/training/rank_pass.h"

#include <catch2/catch.hpp>

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "services/worker/collectives/transports/transports.h"
#include "services/worker/testing/test_ranks.h"
#include "services/worker/testing/test_trainer.h"

namespace lathe::worker {
namespace {

// A model that throws in layer steps and reports several tp ranks.
class BrokenPart : public ModelAround {
 public:
  explicit BrokenPart(const RankGroup& tp) : ModelAround(TestModel()), tp_(tp) {}
  const RankGroup& tp() const override { return tp_; }

 private:
  void BeforeLayer(const at::Tensor&) const override {
    throw std::runtime_error("a test's layer broke");
  }

  const RankGroup tp_;
};

TEST_CASE("Trainer: a rank of tp that has thrown waits for the others for a short time",
          "[trainer][ranks]") {
  FlightRecorder recorder;
  const auto ranks = MakeLocalCollectives(
      "tp", 2,
      {.timeout = kTestPatience, .wait_limit = std::make_shared<WaitLimit>(absl::Milliseconds(10))},
      recorder);
  const RankGroup tp(*ranks[1]);
  const BrokenPart part(tp);
  TestTrainer broken({}, part);
  const auto outputs = broken.Run({TestRequest("a", "m1", 1, {TestDatum(5, 1)})});
  CHECK(absl::IsInternal(outputs.at("a").status()));
  try {
    tp.Gather("round", at::zeros({1}));
    FAIL("no other rank came");
  } catch (const RanksDisagree& error) {
    CHECK(absl::IsDeadlineExceeded(error.status));
    CHECK_THAT(std::string(error.status.message()), Catch::Contains("a test's layer broke"));
  }
}

TEST_CASE("DealRows: as many tokens for each as rows allow", "[trainer][ranks]") {
  std::vector<TrainDatum> data;
  for (const size_t length : std::vector<size_t>{10, 40, 10, 10, 10})
    data.push_back(TestDatum(length, 1));
  TrainJob job{.request = TestRequest("a", "m1", 3, std::move(data))};
  MicroBatch batch;
  for (size_t i = 0; i < job.request.data.size(); ++i) batch.rows.push_back({&job, i});
  CHECK(DealRows(batch, Numerics::kFast, 1) == std::vector<int>{0, 0, 0, 0, 0});
  CHECK(DealRows(batch, Numerics::kFast, 2) == std::vector<int>{1, 0, 1, 1, 1});
  CHECK(DealRows(batch, Numerics::kFast, 3) == std::vector<int>{1, 0, 2, 1, 2});
  CHECK(DealRows(batch, Numerics::kExact, 2) == std::vector<int>{1, 0, 1, 0, 1});
}

}  // namespace
}  // namespace lathe::worker
