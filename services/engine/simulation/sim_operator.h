// The operator of the groups: migrates models between them, drains and removes groups.
#pragma once

#include <functional>
#include <string>

#include "services/engine/core/events.h"
#include "services/engine/simulation/sim_engine.h"
#include "services/engine/simulation/world.h"

namespace lathe::engine::simulation {

class SimOperator {
 public:
  // `leader`: returns the engine that a call reaches.
  SimOperator(World& world, std::function<SimEngine*()> leader)
      : world_(world), leader_(std::move(leader)) {}

  void MoveAnyModel();
  // Drains a group and ends the drain some time later.
  void DrainAnyGroup();
  // Removes the first group if no worker is attached to it. The other groups keep the base model
  // served.
  void RemoveFirstGroup();
  // Call repeatedly after the faults are over. Ends all drains. Also migrates models that the core
  // does not move because they may have ended workers. Such models leave group `gone` (empty: none)
  // and groups that only sample now.
  void CleanUp(const std::string& gone);

 private:
  std::string AnyGroup();
  bool MayTrain(const std::string& group) const;
  void Call(EventBody event);

  World& world_;
  const std::function<SimEngine*()> leader_;
};

}  // namespace lathe::engine::simulation
