// Lists what a device spent its time on, through torch's profiler. On a CPU these are torch's
// operations; Lathe's own CPU kernels are not among them.
#pragma once

#include <functional>

#include <nlohmann/json.hpp>

#include "services/worker/torch/aten.h"

namespace lathe::worker {

// Runs `run` and returns its kernels and copies, most time first:
//   {"launches": N, "milliseconds": T, "kernels": [{"name": S, "launches": n, "milliseconds": t}]}
// T is the sum over all kernels. `kernels` has the first `most`.
nlohmann::json ProfileDevice(at::Device device, size_t most, const std::function<void()>& run);

}  // namespace lathe::worker
