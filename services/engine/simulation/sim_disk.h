// Directories of checkpoints, snapshots and versions, which every process of a run sees.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "services/engine/simulation/counting_adapter.h"

namespace lathe::engine::simulation {

struct CheckpointFiles {
  Weights weights;
  Weights moments;
  int64_t applied_seq = 0;
  Window window;  // of a snapshot
};

// A directory appears whole: a writer that dies before the rename leaves nothing here.
class SimDisk {
 public:
  // False: files that a row names are replaced, or others by unequal ones.
  bool Write(const std::string& dir, CheckpointFiles files, bool is_named);
  // nullptr: no such directory.
  const CheckpointFiles* Find(const std::string& dir) const;
  // Also of directories that are deleted.
  const CheckpointFiles* FindEver(const std::string& dir) const;
  void Delete(const std::string& dir) { dirs_.erase(dir); }
  std::vector<std::string> List() const;

 private:
  std::map<std::string, CheckpointFiles> dirs_;
  std::map<std::string, CheckpointFiles> ever_;
};

}  // namespace lathe::engine::simulation
