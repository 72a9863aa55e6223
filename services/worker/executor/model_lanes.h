// The order in which commands of one model may run.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "services/worker/ops.h"

namespace lathe::worker {

// Commands of one model take effect in order of arrival; those of different models do not wait for
// each other. Train requests between two barriers (everything else) run side by side.
class ModelLanes {
 public:
  using Barrier = std::variant<CreateAdapter, LoadAdapter, RestoreAdapter, DropAdapter, OptimStep,
                               ClearGradient, SaveCheckpoint, Snapshot, PublishVersion>;

  void Push(TrainRequest request);
  void Push(Barrier barrier);

  // Every train request that no barrier holds back; each is to be ended by EndTrain.
  std::vector<TrainRequest> TakeTrains();
  void EndTrain(const std::string& model_id);

  // A barrier with nothing before it in its lane; nullopt: none.
  std::optional<Barrier> TakeBarrier();

 private:
  struct Lane {
    std::deque<std::variant<TrainRequest, Barrier>> waiting;
    int64_t num_running_trains = 0;
  };

  std::map<std::string, Lane> lanes_;  // by model id; none is kept empty and idle
};

// Model a barrier is about.
const std::string& ModelIdOf(const ModelLanes::Barrier& barrier);

}  // namespace lathe::worker
