// Directories of checkpoints, snapshots and versions. All processes of a test share them.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "services/engine/testing/counting_adapter.h"

namespace lathe::engine {

struct CheckpointFiles {
  Weights weights;
  Weights moments;
  int64_t applied_seq = 0;
  Window window;  // only for a snapshot
};

// A directory appears completely: a writer that dies before the rename leaves nothing.
class WorkerDisk {
 public:
  // Returns false if the write replaces files that a row names, or other files by different ones.
  bool Write(const std::string& dir, CheckpointFiles files, bool is_named);
  // Returns nullptr if there is no such directory.
  const CheckpointFiles* Find(const std::string& dir) const;
  // Finds deleted directories too.
  const CheckpointFiles* FindEver(const std::string& dir) const;
  void Delete(const std::string& dir) { dirs_.erase(dir); }
  std::vector<std::string> List() const;
  // The directory can be found, but its files cannot be read any more.
  void Damage(const std::string& dir) { damaged_.insert(dir); }
  bool IsDamaged(const std::string& dir) const { return damaged_.count(dir) > 0; }

 private:
  std::map<std::string, CheckpointFiles> dirs_;
  std::map<std::string, CheckpointFiles> ever_;
  std::set<std::string> damaged_;
};

}  // namespace lathe::engine
