// One instance of FlashInfer's kernel per query tile, head size, and layers with or without a
// window. Each compiles for half a minute, so each head size has its own file.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <flashinfer/attention/default_prefill_params.cuh>

namespace lathe::worker {

using PagedParams =
    flashinfer::BatchPrefillPagedParams<nv_bfloat16, nv_bfloat16, nv_bfloat16, int32_t>;

// `values` and `sums`: scratch memory if several blocks share one row, otherwise null.
template <uint32_t kTileRows, uint32_t kHeadDim, bool kHasWindow>
cudaError_t AttendTile(PagedParams params, nv_bfloat16* values, float* sums, cudaStream_t stream);

}  // namespace lathe::worker
