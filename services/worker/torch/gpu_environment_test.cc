#include "services/worker/torch/gpu_environment.h"

#include <catch2/catch.hpp>

#include <map>
#include <string>

#include <c10/core/AllocatorConfig.h>

namespace lathe::worker {
namespace {

constexpr const char* kNames[] = {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF",
                                  "NCCL_GRAPH_REGISTER", "NCCL_LAUNCH_ORDER_IMPLICIT",
                                  "NCCL_RUNTIME_CONNECT"};

// Returns the variables that SetGpuEnvironment leaves behind, given those that a user has set.
std::map<std::string, std::string> After(const std::map<std::string, std::string>& users) {
  for (const char* name : kNames) unsetenv(name);
  for (const auto& [name, value] : users) setenv(name.c_str(), value.c_str(), /*overwrite=*/1);
  SetGpuEnvironment();
  std::map<std::string, std::string> after;
  for (const char* name : kNames) {
    if (const char* const value = getenv(name)) after[name] = value;
  }
  return after;
}

using Variables = std::map<std::string, std::string>;

TEST_CASE("SetGpuEnvironment: what a user has set stays", "[gpu_environment]") {
  const Variables own = {{"PYTORCH_ALLOC_CONF", "expandable_segments:False"},
                         {"NCCL_GRAPH_REGISTER", "1"},
                         {"NCCL_LAUNCH_ORDER_IMPLICIT", "0"},
                         {"NCCL_RUNTIME_CONNECT", "1"}};
  CHECK(After(own) == own);
  const Variables old = After({{"PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64"}});
  CHECK(old == Variables{{"PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64"},
                         {"NCCL_GRAPH_REGISTER", "0"},
                         {"NCCL_LAUNCH_ORDER_IMPLICIT", "1"},
                         {"NCCL_RUNTIME_CONNECT", "0"}});
}

TEST_CASE("SetGpuEnvironment: torch's allocator reads it", "[gpu_environment]") {
  CHECK(After({}) == Variables{{"PYTORCH_ALLOC_CONF", "expandable_segments:True"},
                               {"NCCL_GRAPH_REGISTER", "0"},
                               {"NCCL_LAUNCH_ORDER_IMPLICIT", "1"},
                               {"NCCL_RUNTIME_CONNECT", "0"}});
  // Torch reads it once. No other test of this program uses its allocator for devices.
  CHECK(c10::CachingAllocator::AcceleratorAllocatorConfig::use_expandable_segments());
}

}  // namespace
}  // namespace lathe::worker
