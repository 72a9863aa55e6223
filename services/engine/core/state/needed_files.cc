#include "services/engine/core/state/needed_files.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "libs/common/digest/sha256.h"

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

void PinDir(State& s, const std::string& dir) { ++s.dir_pins[dir]; }

void UnpinDir(State& s, const std::string& dir) {
  const auto it = s.dir_pins.find(dir);
  if (--it->second > 0) return;
  s.dir_pins.erase(it);
  DeleteFilesIfUnused(s, dir);
}

bool AreFilesNeeded(const State& s, const std::string& dir) {
  return s.dir_pins.count(dir) > 0 || s.checkpoint_of_dir.count(dir) > 0;
}

void DeleteFilesIfUnused(State& s, const std::string& dir) {
  if (!AreFilesNeeded(s, dir)) s.fx.After(DeleteFiles{dir});
}

std::string SaveDir(const std::string& plan_dir, const std::string& group, int64_t epoch) {
  Sha256 hash;
  hash.Update(absl::StrCat(plan_dir, " ", epoch, " ", group));
  return "c" + hash.FinishHex().substr(0, 32);
}

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
