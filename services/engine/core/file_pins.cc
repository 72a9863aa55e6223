#include "services/engine/core/file_pins.h"

#include "absl/strings/str_cat.h"
#include "libs/common/digest/sha256.h"

namespace lathe::engine {

void PinDir(State& s, const std::string& dir) { ++s.dir_pins[dir]; }

void UnpinDir(State& s, const std::string& dir) {
  const auto it = s.dir_pins.find(dir);
  if (--it->second > 0) return;
  s.dir_pins.erase(it);
  DeleteFilesIfUnused(s, dir);
}

void DeleteFilesIfUnused(State& s, const std::string& dir) {
  if (s.dir_pins.count(dir) == 0 && s.checkpoint_of_dir.count(dir) == 0) {
    s.fx.After(DeleteFiles{dir});
  }
}

std::string SaveDir(const std::string& plan_dir, const std::string& group, int64_t epoch) {
  Sha256 hash;
  hash.Update(absl::StrCat(plan_dir, " ", epoch, " ", group));
  return "c" + hash.FinishHex().substr(0, 32);
}

}  // namespace lathe::engine
