// The products with a frozen matrix for a CPU without AVX2, for tests.
#define LATHE_SIMD_CLONES
#define LATHE_CPU_HAS_AVX512 false
#define CpuHasBf16 CpuHasBf16Plain
#define MatmulTransposed MatmulTransposedPlain
#define MatmulPlain MatmulPlainPlain
#define RoundToBf16 RoundToBf16Plain
#include "services/worker/kernels/cpu/matmul/weight_matmul.cc"
