// Kernels for heads of 256 numbers.
#include "services/worker/kernels/cuda/paged_attention_flashinfer.cuh"

namespace lathe::worker {

template cudaError_t AttendTile<16, 256, false>(PagedParams, nv_bfloat16*, float*, cudaStream_t);
template cudaError_t AttendTile<64, 256, false>(PagedParams, nv_bfloat16*, float*, cudaStream_t);
template cudaError_t AttendTile<16, 256, true>(PagedParams, nv_bfloat16*, float*, cudaStream_t);
template cudaError_t AttendTile<64, 256, true>(PagedParams, nv_bfloat16*, float*, cudaStream_t);

}  // namespace lathe::worker
