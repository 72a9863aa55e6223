// The directories of files that must stay on disk, and the names of those that saves write. A
// directory is needed while a row names it, a sampler or load pins it, or a worker may write it.
#pragma once

#include <cstdint>
#include <string>

#include "services/engine/core/state/state.h"

namespace lathe::engine {

// Pinned files stay while a sampler or a load needs them, whatever happens to their row.
void PinDir(State& s, const std::string& dir);
void UnpinDir(State& s, const std::string& dir);

// Returns true if the files in `dir` are pinned or belong to a checkpoint.
bool AreFilesNeeded(const State& s, const std::string& dir);
// Deletes the files in `dir` unless they are needed.
void DeleteFilesIfUnused(State& s, const std::string& dir);

// The directory to which the processes of `group`, formed in `epoch`, write a save with `plan_dir`
// in its plan. Another process that repeats the save writes to another directory. Late writes of
// the first one therefore never change committed files.
std::string SaveDir(const std::string& plan_dir, const std::string& group, int64_t epoch);

// Moves the directories of checkpoints, snapshots and versions that are not needed to the trash. A
// crash or an evicted worker has left them, or they are newer than a database that was restored.
void DropUnneededFiles(State& s);

}  // namespace lathe::engine
