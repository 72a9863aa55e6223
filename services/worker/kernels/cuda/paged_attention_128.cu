// Kernels for heads of 128 numbers.
#include "services/worker/kernels/cuda/paged_attention_flashinfer.cuh"

namespace lathe::worker {

template cudaError_t AttendTile<16, 128, false>(PagedParams, nv_bfloat16*, float*, cudaStream_t);
template cudaError_t AttendTile<64, 128, false>(PagedParams, nv_bfloat16*, float*, cudaStream_t);
template cudaError_t AttendTile<128, 128, false>(PagedParams, nv_bfloat16*, float*, cudaStream_t);
template cudaError_t AttendTile<16, 128, true>(PagedParams, nv_bfloat16*, float*, cudaStream_t);
template cudaError_t AttendTile<64, 128, true>(PagedParams, nv_bfloat16*, float*, cudaStream_t);
template cudaError_t AttendTile<128, 128, true>(PagedParams, nv_bfloat16*, float*, cudaStream_t);

}  // namespace lathe::worker
