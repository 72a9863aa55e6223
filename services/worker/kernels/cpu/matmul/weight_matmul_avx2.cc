// The products with a frozen matrix for a CPU without AVX-512, for tests.
#define LATHE_SIMD_CLONES __attribute__((target("arch=x86-64-v3")))
#define LATHE_CPU_HAS_AVX512 false
#define CpuHasBf16 CpuHasBf16Avx2
#define MatmulTransposed MatmulTransposedAvx2
#define MatmulPlain MatmulPlainAvx2
#define RoundToBf16 RoundToBf16Avx2
#include "services/worker/kernels/cpu/matmul/weight_matmul.cc"
