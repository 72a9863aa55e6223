// Attention in fp32 for CPUs with AVX-512.
#include "services/worker/kernels/cpu/attention/attention_arithmetic.h"
#include "services/worker/kernels/cpu/attention/attention_variants.h"

// Headers above keep the target of all files: other files may be linked with their functions.
#pragma GCC target("arch=x86-64-v4")

#include "services/worker/kernels/cpu/attention/attention_backward.h"
#include "services/worker/kernels/cpu/attention/attention_forward.h"

namespace lathe::worker::attention {

using Arithmetic = Fp32<16, 4>;

const Variant kAvx512 = {"AVX-512", AttendRows<Arithmetic>, AttendMembers<Arithmetic>,
                         BackwardPart<Arithmetic>};

}  // namespace lathe::worker::attention
