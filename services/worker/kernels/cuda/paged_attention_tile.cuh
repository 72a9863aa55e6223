// One instance of FlashInfer's kernel per tile of queries and size of heads; each takes the
// compiler half a minute, so they lie in files of their own.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <flashinfer/attention/default_prefill_params.cuh>

namespace lathe::worker {

using PagedParams =
    flashinfer::BatchPrefillPagedParams<nv_bfloat16, nv_bfloat16, nv_bfloat16, int32_t>;

// `values` and `sums`: room for what several blocks make of one row, null if they do not.
template <uint32_t kTileRows, uint32_t kHeadDim>
cudaError_t AttendTile(PagedParams params, nv_bfloat16* values, float* sums, cudaStream_t stream);

}  // namespace lathe::worker
