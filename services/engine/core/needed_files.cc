#include "services/engine/core/needed_files.h"

#include <set>
#include <string>

#include "services/engine/core/checkpoints.h"

namespace lathe::engine {
namespace {

// Adds directories that a worker, connected or reconnecting, may be writing.
void AddBeingWritten(const State& s, std::set<std::string>& needed) {
  for (const auto& [name, group] : s.groups) needed.insert(group.snapshot_id);
  for (const auto& [id, version] : s.versions) {
    needed.insert(version.saving_dir);
    needed.insert(version.written_dirs.begin(), version.written_dirs.end());
  }
  for (const auto& [order, id] : s.live) {
    const Request& request = s.requests.at(id);
    const auto group = s.groups.find(request.group);
    if (request.plan->dir.empty() || group == s.groups.end()) continue;
    needed.insert(SaveDir(request.plan->dir, request.group, group->second.row.epoch));
  }
}

}  // namespace

void DropUnneededFiles(State& s) {
  std::set<std::string> needed;
  for (const auto& [dir, path] : s.checkpoint_of_dir) needed.insert(dir);
  for (const auto& [dir, count] : s.dir_pins) needed.insert(dir);
  for (const auto& [id, version] : s.versions) needed.insert(version.row.dir);
  for (const auto& [id, model] : s.models) {
    for (const SnapshotRow& row : model.snapshots) needed.insert(row.snapshot_id);
  }
  AddBeingWritten(s, needed);
  needed.erase("");
  s.fx.After(DeleteOtherFiles{{needed.begin(), needed.end()}});
}

}  // namespace lathe::engine
