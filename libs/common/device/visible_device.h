// The GPUs that a process can use.
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/status.h"

namespace lathe {

// Environment variable that lists them.
inline constexpr char kVisibleDevices[] = "CUDA_VISIBLE_DEVICES";

// Returns the value of that variable for a child process that gets GPU `place` of those visible
// here. Empty: there are fewer GPUs.
std::string VisibleDevice(int place);

// Returns the number of GPUs visible to this process: the entries of the variable, or else the
// NVIDIA device files in `dev`. 0: none, or unknown.
int NumVisibleDevices(const std::filesystem::path& dev = "/dev");

// Returns InvalidArgument `configuration` when there are GPUs, but fewer than the `num_ranks` ranks
// on this machine. `device` (auto, cpu or cuda) is the device that the ranks use.
absl::Status CheckVisibleDevices(int num_ranks, const std::string& device);

}  // namespace lathe
