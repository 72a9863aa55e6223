// The properties of this machine that decide which CPU instructions compute.
#pragma once

#include <string>

namespace lathe::worker {

// Describes the choice of code that torch, its libraries and our kernels make at run time: the
// processor's maker, its instruction sets, and settings in the environment. Machines with equal
// texts compute the same bits. Example: "AVX512 of intel with avx2 fma avx512f, MKL_CBWR=AVX2"
std::string CpuArithmetic();

}  // namespace lathe::worker
