// The files that belong to a view of a database: those that an engine which starts to lead on the
// database would keep.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/engine/store/database_view.h"

namespace lathe::engine {

// A directory of a checkpoint, a snapshot or a sampler version.
struct NeededDir {
  std::string dir;              // below DATA_DIR/checkpoints
  std::string manifest_sha256;  // empty: no row says it
  // False if a worker may be writing it: then it may be missing, and is written again.
  bool must_exist = true;
};

struct NeededFiles {
  std::vector<NeededDir> dirs;      // sorted by name
  std::vector<std::string> bodies;  // below DATA_DIR/bodies
  // Bodies of unfinished requests. Others of `bodies` may be missing: a row keeps the id of a body
  // that was dropped, because a snapshot has what it added.
  std::set<std::string> unfinished_bodies;
};

absl::StatusOr<NeededFiles> FindNeededFiles(DatabaseView& view);

}  // namespace lathe::engine
