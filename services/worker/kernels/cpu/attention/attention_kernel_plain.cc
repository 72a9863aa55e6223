// Attention in fp32 for CPUs without AVX2.
#include "services/worker/kernels/cpu/attention/attention_arithmetic.h"
#include "services/worker/kernels/cpu/attention/attention_backward.h"
#include "services/worker/kernels/cpu/attention/attention_forward.h"
#include "services/worker/kernels/cpu/attention/attention_variants.h"

namespace lathe::worker::attention {

using Arithmetic = Fp32<4, 1>;

const Variant kPlain = {"SSE2", AttendRows<Arithmetic>, AttendMembers<Arithmetic>,
                        BackwardPart<Arithmetic>};

}  // namespace lathe::worker::attention
