#include "services/engine/simulation/sim_operator.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

namespace lathe::engine::simulation {

std::string SimOperator::AnyGroup() {
  return absl::StrCat("g", world_.random.Below(world_.swarm.num_groups));
}

bool SimOperator::MayTrain(const std::string& group) const {
  if (group.empty()) return true;  // the first group to attach takes it
  return world_.swarm.roles.at(static_cast<size_t>(group.at(1) - '0')) != GroupRole::kSample;
}

void SimOperator::Call(EventBody event) {
  if (leader_()->is_up()) leader_()->Call(std::move(event), nullptr, [](const Answer&) {});
}

void SimOperator::MoveAnyModel() {
  const auto& models = world_.store.models();
  if (models.empty()) return;
  auto it = models.begin();
  std::advance(it, world_.random.Below(static_cast<int64_t>(models.size())));
  Call(MoveModel{0, it->first, AnyGroup()});
}

void SimOperator::DrainAnyGroup() {
  const std::string group = AnyGroup();
  Call(DrainGroup{0, group, /*is_draining=*/true});
  world_.time.After(world_.Delay(60 * kSecond), [this, group] {
    Call(DrainGroup{0, group, /*is_draining=*/false});
  });
}

void SimOperator::RemoveFirstGroup() {
  const auto& groups = world_.store.groups();
  const bool others_serve = std::any_of(groups.begin(), groups.end(), [](const auto& entry) {
    return entry.first != "g0" && !entry.second.base_model.empty();
  });
  if (others_serve) Call(RemoveGroup{0, "g0"});
}

void SimOperator::CleanUp(const std::string& gone) {
  for (const auto& [name, row] : world_.store.groups()) {
    if (row.is_draining) Call(DrainGroup{0, name, /*is_draining=*/false});
  }
  for (const auto& [id, row] : world_.store.models()) {
    const bool may_be_stuck =
        row.state <= ModelState::kReady && (row.group == gone || !MayTrain(row.group));
    if (may_be_stuck) Call(MoveModel{0, id, absl::StrCat("g", world_.swarm.num_groups - 1)});
  }
  world_.time.After(20 * kSecond, [this, gone] { CleanUp(gone); });
}

}  // namespace lathe::engine::simulation
