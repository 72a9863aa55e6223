// What decides which instructions compute on this machine.
#pragma once

#include <string>

namespace lathe::worker {

// Machines with the same text compute the same bits, as far as torch, its libraries and our kernels
// choose their code while they run: by the processor's maker and instruction sets, and by what the
// environment tells them. "AVX512 of intel with avx2 fma avx512f, MKL_CBWR=AVX2"
std::string CpuArithmetic();

}  // namespace lathe::worker
