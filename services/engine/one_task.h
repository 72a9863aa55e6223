// Tasks that lathe-engine carries out for other programs in place of serving: it describes its
// store, or makes and restores backups.
#pragma once

#include <optional>
#include <string>

namespace lathe::engine {

struct Settings;

inline constexpr int kExitIo = 74;  // sysexits.h: EX_IOERR

// One of --check-store=DEPTH, --backup=DIR and --restore=DIR. It is no option, because no file
// should have it.
struct OneTask {
  enum class Kind { kCheckStore, kBackup, kRestore };
  Kind kind = Kind::kCheckStore;
  std::string argument;  // quick or deep; the folder of the backup
};

// Takes a task out of the arguments. Returns nothing if there is none.
std::optional<OneTask> TakeTask(int& argc, char** argv);

// Carries out `task`, prints what it found, and returns the exit code of the process.
int RunTask(const OneTask& task, const Settings& settings);

}  // namespace lathe::engine
