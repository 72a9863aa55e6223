// The order in which commands of one model may run.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "services/worker/ops/commands.h"
#include "services/worker/ops/training.h"

namespace lathe::worker {

// Queues of commands by model. Commands of one model take effect in order of arrival. Models do not
// wait for each other. All commands but train requests are barriers. Train requests between two
// barriers run concurrently.
class ModelLanes {
 public:
  using Barrier = std::variant<CreateAdapter, LoadAdapter, RestoreAdapter, DropAdapter, OptimStep,
                               ClearGradient, SaveCheckpoint, Snapshot, PublishVersion>;

  void Push(TrainRequest request);
  void Push(Barrier barrier);

  // Returns every train request that no barrier holds back. Each one must be ended by EndTrain.
  std::vector<TrainRequest> TakeTrains();
  void EndTrain(const std::string& model_id);

  // Returns a barrier with nothing before it in its lane, for which `may_run` returns true, or a
  // snapshot behind a save that may not run; nullopt: none. The others wait in their lanes.
  std::optional<Barrier> TakeBarrier(const std::function<bool(const Barrier&)>& may_run);

 private:
  struct Lane {
    std::deque<std::variant<TrainRequest, Barrier>> waiting;
    int64_t num_running_trains = 0;
  };

  std::map<std::string, Lane> lanes_;  // by model id; empty idle lanes are removed
};

// Returns the id of the barrier's model.
const std::string& ModelIdOf(const ModelLanes::Barrier& barrier);

}  // namespace lathe::worker
