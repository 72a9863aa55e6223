#include "services/engine/backup/backup_files.h"

#include <map>
#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "libs/common/status_macros.h"
#include "services/engine/core/core.h"
#include "services/engine/core/state/plan.h"

namespace lathe::engine {
namespace {

// Directories that rows name, with the digests of their manifests.
std::map<std::string, std::string> NamedDirs(const StoredState& state) {
  std::map<std::string, std::string> dirs;
  for (const SamplerRow& row : state.samplers) dirs[row.checkpoint_dir];
  for (const RequestRow& row : state.requests) {
    if (row.kind != OperationKind::kLoadWeights) continue;
    if (!absl::StartsWith(row.outcome, kFailedOutcome)) dirs[row.outcome];
    if (const std::optional<Plan> plan = DecodePlan(row.plan)) dirs[plan->dir];
  }
  for (const CheckpointRow& row : state.checkpoints) dirs[row.dir] = row.manifest_sha256;
  for (const SnapshotRow& row : state.snapshots) dirs[row.snapshot_id] = row.manifest_sha256;
  for (const VersionRow& row : state.versions) dirs[row.dir] = row.manifest_sha256;
  return dirs;
}

std::vector<NeededDir> Describe(const std::vector<std::string>& dirs,
                                const std::map<std::string, std::string>& named) {
  std::vector<NeededDir> needed;
  for (const std::string& dir : dirs) {
    const auto row = named.find(dir);
    const bool is_named = row != named.end();
    needed.push_back({dir, is_named ? row->second : "", is_named});
  }
  return needed;
}

absl::StatusOr<std::vector<NeededDir>> FindNeededDirs(StoredState state) {
  const std::map<std::string, std::string> named = NamedDirs(state);
  // The first leader of a database keeps everything, as it cannot know the files.
  state.term = 2;
  Core core(CoreOptions{});
  const int64_t now = absl::GetCurrentTimeNanos();
  std::vector<Action> actions;
  core.Step({.now = now, .body = Loaded{.state = std::move(state)}}, &actions);
  // The core may change rows first, and names the files once that is durable.
  std::vector<Action> after;
  for (const Action& action : actions) {
    const auto* const commit = std::get_if<Commit>(&action);
    if (commit != nullptr) {
      core.Step({.now = now, .body = Committed{.commit_id = commit->commit_id}}, &after);
    }
  }
  actions.insert(actions.end(), after.begin(), after.end());
  for (const Action& action : actions) {
    if (const auto* const others = std::get_if<DeleteOtherFiles>(&action)) {
      return Describe(others->needed_dirs, named);
    }
  }
  return absl::InternalError("the core does not name the files that it needs");
}

}  // namespace

absl::StatusOr<NeededFiles> FindNeededFiles(DatabaseView& view) {
  ASSIGN_OR_RETURN(StoredState state, view.Load());
  NeededFiles needed;
  for (const RequestRow& row : state.requests) {
    if (row.state < RequestState::kDone) needed.unfinished_bodies.insert(row.body_id);
  }
  ASSIGN_OR_RETURN(needed.dirs, FindNeededDirs(std::move(state)));
  ASSIGN_OR_RETURN(needed.bodies, view.BodyFiles());
  return needed;
}

}  // namespace lathe::engine
