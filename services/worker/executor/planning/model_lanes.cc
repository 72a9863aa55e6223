#include "services/worker/executor/planning/model_lanes.h"

#include <utility>

namespace lathe::worker {

const std::string& ModelIdOf(const ModelLanes::Barrier& barrier) {
  return std::visit([](const auto& command) -> const std::string& { return command.model_id; },
                    barrier);
}

void ModelLanes::Push(TrainRequest request) {
  const std::string model_id = request.model_id;
  lanes_[model_id].waiting.emplace_back(std::move(request));
}

void ModelLanes::Push(Barrier barrier) {
  const std::string model_id = ModelIdOf(barrier);
  lanes_[model_id].waiting.emplace_back(std::move(barrier));
}

std::vector<TrainRequest> ModelLanes::TakeTrains() {
  std::vector<TrainRequest> requests;
  for (auto& [model_id, lane] : lanes_) {
    while (!lane.waiting.empty()) {
      auto* request = std::get_if<TrainRequest>(&lane.waiting.front());
      if (request == nullptr) break;
      requests.push_back(std::move(*request));
      lane.waiting.pop_front();
      ++lane.num_running_trains;
    }
  }
  return requests;
}

void ModelLanes::EndTrain(const std::string& model_id) {
  const auto it = lanes_.find(model_id);
  --it->second.num_running_trains;
  if (it->second.num_running_trains == 0 && it->second.waiting.empty()) lanes_.erase(it);
}

std::optional<ModelLanes::Barrier> ModelLanes::TakeBarrier(
    const std::function<bool(const Barrier&)>& may_run) {
  for (auto it = lanes_.begin(); it != lanes_.end(); ++it) {
    Lane& lane = it->second;
    if (lane.num_running_trains > 0) continue;
    auto it_taken = lane.waiting.begin();
    auto* first = std::get_if<Barrier>(&*it_taken);
    if (first == nullptr) continue;
    if (!may_run(*first)) {
      // Both copy the same state. The group writes no other snapshot until this one is written.
      if (!std::holds_alternative<SaveCheckpoint>(*first) || lane.waiting.size() < 2) continue;
      first = std::get_if<Barrier>(&*++it_taken);
      if (first == nullptr || !std::holds_alternative<Snapshot>(*first)) continue;
    }
    Barrier barrier = std::move(*first);
    lane.waiting.erase(it_taken);
    if (lane.waiting.empty()) lanes_.erase(it);
    return barrier;
  }
  return std::nullopt;
}

}  // namespace lathe::worker
