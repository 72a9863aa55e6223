// How idle threads of libgomp wait. Does not include torch.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace lathe::worker {

// Restarts the program in place with OMP_WAIT_POLICY=passive, which libgomp reads when it is
// loaded, before main. Its threads, which some torch operations use, then sleep while idle. By
// default each would spin for many milliseconds on a core that the compute team needs. Does nothing
// if the environment sets one of libgomp's variables.
inline void RestartWithSleepingOpenMp(char** argv) {
  if (getenv("OMP_WAIT_POLICY") != nullptr || getenv("GOMP_SPINCOUNT") != nullptr) return;
  setenv("OMP_WAIT_POLICY", "passive", /*overwrite=*/1);
  std::error_code error;
  // The program's own path gives the process its name; /proc/self/exe would name it "exe".
  const auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) execv(path.c_str(), argv);
}

}  // namespace lathe::worker
