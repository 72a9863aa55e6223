// The body of AttendTile, for the files that instantiate it: its headers compile for a minute.
#pragma once

#include <flashinfer/attention/prefill.cuh>
#include <flashinfer/attention/variants.cuh>

#include "services/worker/kernels/cuda/paged_attention_tile.cuh"

namespace lathe::worker {

template <uint32_t kTileRows, uint32_t kHeadDim, bool kHasWindow>
cudaError_t AttendTile(PagedParams params, nv_bfloat16* values, float* sums, cudaStream_t stream) {
  using Plain =
      flashinfer::DefaultAttention</*use_custom_mask=*/false, /*use_sliding_window=*/kHasWindow,
                                   /*use_logits_soft_cap=*/false, /*use_alibi=*/false>;
  return flashinfer::BatchPrefillWithPagedKVCacheDispatched<
      /*SAME_KV_STRIDES=*/true, kTileRows, kHeadDim, kHeadDim, flashinfer::PosEncodingMode::kNone,
      /*USE_FP16_QK_REDUCTION=*/false, flashinfer::MaskMode::kCausal, Plain, PagedParams>(
      params, values, sums, /*enable_pdl=*/false, stream);
}

}  // namespace lathe::worker
