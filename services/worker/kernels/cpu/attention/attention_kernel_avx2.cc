// Attention in fp32 for CPUs with AVX2.
#include "services/worker/kernels/cpu/attention/attention_arithmetic.h"
#include "services/worker/kernels/cpu/attention/attention_variants.h"

// Headers above keep the target of all files: other files may be linked with their functions.
#pragma GCC target("arch=x86-64-v3")

#include "services/worker/kernels/cpu/attention/attention_backward.h"
#include "services/worker/kernels/cpu/attention/attention_forward.h"

namespace lathe::worker::attention {

using Arithmetic = Fp32<8, 2>;

const Variant kAvx2 = {"AVX2", AttendRows<Arithmetic>, AttendMembers<Arithmetic>,
                       BackwardPart<Arithmetic>};

}  // namespace lathe::worker::attention
