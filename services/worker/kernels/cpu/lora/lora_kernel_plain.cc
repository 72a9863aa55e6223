// The LoRA kernels for a CPU without AVX2, for tests.
#define LATHE_SIMD_CLONES
#define LoraDots LoraDotsPlain
#define LoraSums LoraSumsPlain
#define AddLoraGradient AddLoraGradientPlain
#include "services/worker/kernels/cpu/lora/lora_kernel.cc"
