// A trainer over a small random model, for tests.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <c10/util/Exception.h>

#include "libs/common/losses/registry.h"
#include "services/worker/testing/test_model.h"
#include "services/worker/training/trainer.h"

namespace lathe::worker {

// Throws OutOfMemoryError in layer steps of more than `max_rows` rows.
class ModelWithLittleMemory : public ModelAround {
 public:
  ModelWithLittleMemory(const Model& model, int64_t max_rows)
      : ModelAround(model), max_rows_(max_rows) {}

 private:
  void BeforeLayer(const at::Tensor& x) const override {
    if (x.size(0) > max_rows_) {
      C10_THROW_ERROR(OutOfMemoryError, "a test's device is out of memory");
    }
  }

  const int64_t max_rows_;
};

inline const Model& TestModel() {
  static const Decoder* model = new Decoder(SmallModel());
  return *model;
}

// Returns an adapter with non-zero B, so that every factor has a gradient.
inline std::shared_ptr<Adapter> TestAdapter(int64_t rank, uint64_t seed) {
  auto adapter = std::make_shared<Adapter>(WholeModel(SmallSpec()),
                                           LoraSpec{.rank = rank, .seed = seed}, at::kCPU);
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  adapter->MutableParameters().normal_(0, 0.05, generator);
  return adapter;
}

inline TrainDatum TestDatum(size_t length, int32_t first_token, float advantage = 1.0f) {
  const int32_t vocab_size = static_cast<int32_t>(SmallSpec().vocab_size);
  TrainDatum datum;
  for (size_t i = 0; i < length; ++i) {
    const auto token = static_cast<int32_t>(first_token + 7 * static_cast<int32_t>(i));
    datum.tokens.push_back(token % vocab_size);
    datum.targets.push_back((token + 7) % vocab_size);
    datum.weights.push_back(i == 0 ? 0.0f : 0.5f);
    datum.logprobs.push_back(-4.5f);
    datum.advantages.push_back(i == 0 ? 0.0f : advantage);
    datum.mask.push_back(i == 0 ? 0.0f : 1.0f);
  }
  return datum;
}

inline TrainRequest TestRequest(const std::string& id, const std::string& model_id, int64_t seq_id,
                                std::vector<TrainDatum> data,
                                std::string_view loss = "cross_entropy") {
  return {.request_id = id,
          .model_id = model_id,
          .seq_id = seq_id,
          .forward_only = false,
          .loss = DefaultLoss(loss),
          .data = std::move(data)};
}

// A trainer with adapters m1 (rank 3) and m2 (rank 7).
struct TestTrainer {
  explicit TestTrainer(const TrainerOptions& options = {}, const Model& model = TestModel())
      : trainer(model, adapters, options) {
    adapters.Put("m1", TestAdapter(3, 1));
    adapters.Put("m2", TestAdapter(7, 2));
  }

  using Outputs = std::map<std::string, absl::StatusOr<TrainOutput>>;

  Outputs Run(std::vector<TrainRequest> requests) {
    trainer.Begin({std::move(requests)});
    return Finish();
  }

  Outputs Finish() {
    while (trainer.RunUnit()) {
    }
    Outputs outputs;
    for (FinishedRequest& finished : trainer.TakeFinished()) {
      outputs.emplace(finished.request_id, std::move(finished.output));
    }
    return outputs;
  }

  Adapter& adapter(const std::string& model_id) { return *adapters.Find(model_id); }

  AdapterPool adapters;
  Trainer trainer;
};

}  // namespace lathe::worker
