#include "services/worker/executor/startup/cpu_arithmetic.h"

#include <cstdlib>
#include <utility>

#include <ATen/Version.h>

#include "absl/strings/str_cat.h"

namespace lathe::worker {
namespace {

// MKL chooses its code by the processor's maker.
const char* Maker() {
#if defined(__x86_64__)
  if (__builtin_cpu_is("intel")) return "intel";
  if (__builtin_cpu_is("amd")) return "amd";
#endif
  return "another maker";
}

std::string InstructionSets() {
  std::string names;
#if defined(__x86_64__)
  const std::pair<const char*, int> sets[] = {{"avx2", __builtin_cpu_supports("avx2")},
                                              {"fma", __builtin_cpu_supports("fma")},
                                              {"avx512f", __builtin_cpu_supports("avx512f")},
                                              {"avx512bw", __builtin_cpu_supports("avx512bw")},
                                              {"avx512dq", __builtin_cpu_supports("avx512dq")},
                                              {"avx512vl", __builtin_cpu_supports("avx512vl")},
                                              {"avx512vnni", __builtin_cpu_supports("avx512vnni")},
                                              {"avx512bf16", __builtin_cpu_supports("avx512bf16")}};
  for (const auto& [name, has_it] : sets) {
    if (has_it != 0) absl::StrAppend(&names, " ", name);
  }
#endif
  return names.empty() ? " nothing" : names;
}

}  // namespace

std::string CpuArithmetic() {
  std::string text =
      absl::StrCat(at::get_cpu_capability(), " of ", Maker(), " with", InstructionSets());
  for (const char* name : {"MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA",
                           "DNNL_MAX_CPU_ISA", "ONEDNN_DEFAULT_FPMATH_MODE"}) {
    const char* const value = std::getenv(name);
    if (value != nullptr) absl::StrAppend(&text, ", ", name, "=", value);
  }
  return text;
}

}  // namespace lathe::worker
