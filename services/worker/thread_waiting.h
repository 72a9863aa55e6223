// How idle threads of libgomp wait. Free of torch.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace lathe::worker {

// Starts the program again, in place, with a setting that libgomp reads when it is loaded, before
// main: its threads, which some operations of torch use, sleep when they have nothing to do. By
// itself each would look for work for many milliseconds, on a core that the compute team needs.
// What the environment says already stays.
inline void RestartWithSleepingOpenMp(char** argv) {
  if (getenv("OMP_WAIT_POLICY") != nullptr || getenv("GOMP_SPINCOUNT") != nullptr) return;
  setenv("OMP_WAIT_POLICY", "passive", /*overwrite=*/1);
  std::error_code error;
  // By its own path, which gives the process its name.
  const auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) execv(path.c_str(), argv);
}

}  // namespace lathe::worker
