#include "services/engine/testing/worker_disk.h"

#include <utility>

namespace lathe::engine {
namespace {

const CheckpointFiles* FindIn(const std::map<std::string, CheckpointFiles>& dirs,
                              const std::string& dir) {
  const auto it = dirs.find(dir);
  return it == dirs.end() ? nullptr : &it->second;
}

bool AreEqual(const CheckpointFiles& a, const CheckpointFiles& b) {
  return HashOf(a.weights) == HashOf(b.weights) && HashOf(a.moments) == HashOf(b.moments) &&
         a.applied_seq == b.applied_seq && a.window == b.window;
}

}  // namespace

bool WorkerDisk::Write(const std::string& dir, CheckpointFiles files, bool is_named) {
  const CheckpointFiles* const before = FindEver(dir);
  const bool fits = before == nullptr || (!is_named && AreEqual(*before, files));
  ever_[dir] = files;
  dirs_[dir] = std::move(files);
  return fits;
}

const CheckpointFiles* WorkerDisk::Find(const std::string& dir) const { return FindIn(dirs_, dir); }

const CheckpointFiles* WorkerDisk::FindEver(const std::string& dir) const {
  return FindIn(ever_, dir);
}

std::vector<std::string> WorkerDisk::List() const {
  std::vector<std::string> names;
  for (const auto& [name, files] : dirs_) names.push_back(name);
  return names;
}

}  // namespace lathe::engine
