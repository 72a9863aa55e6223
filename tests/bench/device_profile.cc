#include "tests/bench/device_profile.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/autograd/profiler_kineto.h>

namespace lathe::worker {
namespace {

using torch::profiler::impl::ActivityType;
using torch::profiler::impl::ProfilerConfig;
using torch::profiler::impl::ProfilerState;

struct KernelTime {
  int64_t launches = 0;
  double milliseconds = 0;
};

}  // namespace

nlohmann::json ProfileDevice(at::Device device, size_t most, const std::function<void()>& run) {
  const ProfilerConfig config(ProfilerState::KINETO);
  const std::set<ActivityType> activities = {device.is_cpu() ? ActivityType::CPU
                                                             : ActivityType::CUDA};
  torch::autograd::profiler::prepareProfiler(config, activities);
  torch::autograd::profiler::enableProfiler(config, activities);
  run();
  const auto result = torch::autograd::profiler::disableProfiler();

  std::map<std::string, KernelTime> by_name;
  KernelTime total;
  for (const auto& event : result->events()) {
    if (event.deviceType() != device.type()) continue;
    for (KernelTime* time : {&by_name[event.name()], &total}) {
      ++time->launches;
      time->milliseconds += static_cast<double>(event.durationNs()) * 1e-6;
    }
  }
  std::vector<std::pair<std::string, KernelTime>> sorted(by_name.begin(), by_name.end());
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return a.second.milliseconds > b.second.milliseconds;
  });
  nlohmann::json kernels = nlohmann::json::array();
  for (const auto& [name, time] : sorted) {
    if (kernels.size() == most) break;
    kernels.push_back(
        {{"name", name}, {"launches", time.launches}, {"milliseconds", time.milliseconds}});
  }
  return {{"launches", total.launches},
          {"milliseconds", total.milliseconds},
          {"kernels", std::move(kernels)}};
}

}  // namespace lathe::worker
