// The LoRA kernels for a CPU without AVX-512, for tests.
#define LATHE_SIMD_CLONES __attribute__((target("arch=x86-64-v3")))
#define LoraDots LoraDotsAvx2
#define LoraSums LoraSumsAvx2
#define AddLoraGradient AddLoraGradientAvx2
#include "services/worker/kernels/cpu/lora/lora_kernel.cc"
