// The core's records of samplers and of the versions from which they sample.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "services/engine/core/state/indexed_map.h"
#include "services/engine/store/rows.h"

namespace lathe::engine {

struct Sampler {
  SamplerRow row;
  int64_t order = 0;  // order of creation
  int64_t last_sampled_at = 0;
  std::map<int64_t, std::string> pending;  // its live samples: id by order of acceptance
  bool lost = false;  // its version or checkpoint is gone and cannot be restored
  // True while its session is offloaded, and until its next use or sweep after that. Workers need
  // not keep its version for it, and it does not pin its files.
  bool is_idle = false;

  bool pins() const { return !row.checkpoint_dir.empty() && !is_idle && !lost; }
  // True if the sampler needs an unnamed version, which exists or can be made again.
  bool keeps_version() const { return unnamed() && !lost && !row.version_dropped; }
  bool unnamed() const { return !row.version_id.empty() && row.checkpoint_dir.empty(); }
};

// An unnamed sampler version in use by samplers.
struct Version {
  VersionRow row;          // empty dir: not on disk
  int64_t seq_id = 0;      // seq of its newest publication
  std::string saving_dir;  // directory of the write under way; empty: none
  // Directories to which workers wrote the version at this leader's command. A new leader deletes
  // the directories of earlier terms that no row names.
  std::set<std::string> written_dirs;
  bool failed = false;  // true: the last write failed
  // Groups that may read the version, by directory. Directories of earlier publications are kept
  // for these groups.
  std::map<std::string, std::set<std::string>> readers;

  bool on_disk() const { return !row.dir.empty() && row.seq_id == seq_id; }
};

inline const std::string& VersionIdOf(const Sampler& sampler) { return sampler.row.version_id; }
inline const std::string& ModelIdOf(const Version& version) { return version.row.model_id; }

// Samplers by id, found by the version that they use; versions by id, found by their model.
using Samplers = IndexedMap<Sampler, VersionIdOf>;
using Versions = IndexedMap<Version, ModelIdOf>;

}  // namespace lathe::engine
