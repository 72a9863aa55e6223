// Which GPUs a process sees.
#pragma once

#include <string>

namespace lathe {

// The variable that says so.
inline constexpr char kVisibleDevices[] = "CUDA_VISIBLE_DEVICES";

// What it is to be for the one of several processes that gets GPU `place` of those that this one
// sees; empty: there are not as many.
std::string VisibleDevice(int place);

}  // namespace lathe
