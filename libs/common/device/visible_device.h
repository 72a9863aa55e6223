// Which GPUs a process sees.
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/status.h"

namespace lathe {

// The variable that says so.
inline constexpr char kVisibleDevices[] = "CUDA_VISIBLE_DEVICES";

// What it is to be for the one of several processes that gets GPU `place` of those that this one
// sees; empty: there are not as many.
std::string VisibleDevice(int place);

// How many GPUs this process sees: the entries of that variable, or of an NVIDIA driver's devices
// those in `dev`. 0: none, or nothing that says so.
int NumVisibleDevices(const std::filesystem::path& dev = "/dev");

// InvalidArgument `configuration` when some GPUs are there, but not one for each of `num_ranks`
// ranks on this machine; `device` (auto, cpu or cuda) is what they are to use.
absl::Status CheckVisibleDevices(int num_ranks, const std::string& device);

}  // namespace lathe
