// The LoRA kernels as a CPU without AVX2 runs them, for tests.
#define LATHE_SIMD_CLONES
#define LoraDots LoraDotsPlain
#define LoraSums LoraSumsPlain
#define AddLoraGradient AddLoraGradientPlain
#include "services/worker/kernels/cpu/lora_kernel.cc"
