// How idle threads of libgomp wait. Free of torch.
#pragma once

#include <strings.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace lathe::worker {

// Starts the program again, in place, with settings that libgomp reads when it is loaded, before
// main: a thread that has nothing to do looks for work for a moment, then sleeps. Between two
// parallel sections of a decode pass lie some tens of microseconds; waking a thread takes up to a
// hundred, a hundred times a pass. Sleeping after that moment leaves the cores to everyone else
// when the process is idle. What the environment says already stays.
inline void RestartWithBriefSpinning(char** argv) {
  constexpr const char* kSpins = "2000";  // about 0.2 ms
  const char* policy = getenv("OMP_WAIT_POLICY");
  const bool is_passive = policy == nullptr || strcasecmp(policy, "passive") == 0;
  if (!is_passive || getenv("GOMP_SPINCOUNT") != nullptr) return;
  setenv("OMP_WAIT_POLICY", "passive", /*overwrite=*/1);
  setenv("GOMP_SPINCOUNT", kSpins, /*overwrite=*/1);
  std::error_code error;
  // By its own path, which gives the process its name.
  const auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) execv(path.c_str(), argv);
}

}  // namespace lathe::worker
