// Kernels for heads of 64 numbers.
#include "services/worker/kernels/cuda/paged_attention_flashinfer.cuh"

namespace lathe::worker {

template cudaError_t AttendTile<16, 64, false>(PagedParams, nv_bfloat16*, float*, cudaStream_t);
template cudaError_t AttendTile<64, 64, false>(PagedParams, nv_bfloat16*, float*, cudaStream_t);
template cudaError_t AttendTile<128, 64, false>(PagedParams, nv_bfloat16*, float*, cudaStream_t);
template cudaError_t AttendTile<16, 64, true>(PagedParams, nv_bfloat16*, float*, cudaStream_t);
template cudaError_t AttendTile<64, 64, true>(PagedParams, nv_bfloat16*, float*, cudaStream_t);
template cudaError_t AttendTile<128, 64, true>(PagedParams, nv_bfloat16*, float*, cudaStream_t);

}  // namespace lathe::worker
