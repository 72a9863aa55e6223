// Who runs the groups of a Lathe: moves models between them and takes them out of service.
#pragma once

#include <functional>
#include <string>

#include "services/engine/core/events.h"
#include "services/engine/simulation/sim_engine.h"
#include "services/engine/simulation/world.h"

namespace lathe::engine::simulation {

class SimOperator {
 public:
  // `leader`: whom a call reaches.
  SimOperator(World& world, std::function<SimEngine*()> leader)
      : world_(world), leader_(std::move(leader)) {}

  void MoveAnyModel();
  // Some time later it is used again.
  void DrainAnyGroup();
  // From the end of the faults on: uses groups again that are still drained, and moves models that
  // the core will not take away, as they may have ended workers, from group `gone` (empty: none is)
  // and from those that only sample now.
  void CleanUp(const std::string& gone);

 private:
  std::string AnyGroup();
  bool MayTrain(const std::string& group) const;
  void Call(EventBody event);

  World& world_;
  const std::function<SimEngine*()> leader_;
};

}  // namespace lathe::engine::simulation
