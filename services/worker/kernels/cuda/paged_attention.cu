#include "services/worker/kernels/cuda/paged_attention.h"

#include <flashinfer/attention/default_prefill_params.cuh>
#include <flashinfer/attention/scheduler.cuh>

#include "services/worker/kernels/cuda/launch.cuh"
#include "services/worker/kernels/cuda/paged_attention_tile.cuh"

namespace lathe::worker {
namespace {

constexpr int kBf16Bytes = 2;

// PrefillPlan takes pointers without const but only reads them.
int32_t* Mutable(const std::vector<int32_t>& numbers) {
  return const_cast<int32_t*>(numbers.data());
}

// FlashInfer counts the keys before the query's own; -1: all.
int32_t WindowLeft(const PagedShape& shape) { return static_cast<int32_t>(shape.window) - 1; }

uint32_t NumSequences(const PagedRows& rows) {
  return static_cast<uint32_t>(rows.row_starts.size() - 1);
}

PagedParams ParamsOf(const PagedAttentionTask& task, const flashinfer::PrefillPlanInfo& plan) {
  using flashinfer::GetPtrFromBaseOffset;
  const auto heads = static_cast<uint32_t>(task.shape.num_heads);
  const auto head_dim = static_cast<uint32_t>(task.shape.head_dim);
  const auto kv_heads = static_cast<uint32_t>(task.shape.num_kv_heads);
  PagedParams params;
  params.q = reinterpret_cast<nv_bfloat16*>(task.q);
  params.paged_kv = flashinfer::paged_kv_t<nv_bfloat16, int32_t>(
      kv_heads, static_cast<uint32_t>(task.shape.page_tokens), head_dim,
      static_cast<uint32_t>(task.num_sequences), flashinfer::QKVLayout::kHND,
      reinterpret_cast<nv_bfloat16*>(task.keys), reinterpret_cast<nv_bfloat16*>(task.values),
      task.pages, task.page_starts, task.last_page_tokens);
  params.q_indptr = task.row_starts;
  params.o = reinterpret_cast<nv_bfloat16*>(task.out);
  params.num_qo_heads = heads;
  params.group_size = flashinfer::uint_fastdiv(heads / kv_heads);
  params.q_stride_n = static_cast<int32_t>(heads * head_dim);
  params.q_stride_h = static_cast<int32_t>(head_dim);
  params.window_left = WindowLeft(task.shape);
  params.sm_scale = task.scale;
  params.rope_rcp_scale = 1;
  params.rope_rcp_theta = 1;
  void* const ints = task.int_workspace;
  params.request_indices = GetPtrFromBaseOffset<int32_t>(ints, plan.request_indices_offset);
  params.qo_tile_indices = GetPtrFromBaseOffset<int32_t>(ints, plan.qo_tile_indices_offset);
  params.kv_tile_indices = GetPtrFromBaseOffset<int32_t>(ints, plan.kv_tile_indices_offset);
  params.o_indptr = GetPtrFromBaseOffset<int32_t>(ints, plan.o_indptr_offset);
  params.kv_chunk_size_ptr = GetPtrFromBaseOffset<int32_t>(ints, plan.kv_chunk_size_ptr_offset);
  params.partition_kv = plan.split_kv;
  if (plan.split_kv) {
    params.merge_indptr = GetPtrFromBaseOffset<int32_t>(ints, plan.merge_indptr_offset);
  }
  params.padded_batch_size = static_cast<uint32_t>(plan.padded_batch_size);
  params.max_total_num_rows = static_cast<uint32_t>(plan.total_num_rows);
  if (plan.enable_cuda_graph) {
    params.block_valid_mask = GetPtrFromBaseOffset<bool>(ints, plan.block_valid_mask_offset);
    params.total_num_rows = GetPtrFromBaseOffset<uint32_t>(ints, plan.total_num_rows_offset);
  }
  return params;
}

using AttendTileFunction = cudaError_t (*)(PagedParams, nv_bfloat16*, float*, cudaStream_t);

template <bool kHasWindow>
AttendTileFunction TileFor(int64_t head_dim, int64_t tile_rows) {
  if (head_dim == 256) {  // FlashInfer plans no tiles of 128 rows for it
    return tile_rows == 16 ? AttendTile<16, 256, kHasWindow> : AttendTile<64, 256, kHasWindow>;
  }
  if (head_dim == 128) {
    return tile_rows == 16   ? AttendTile<16, 128, kHasWindow>
           : tile_rows == 64 ? AttendTile<64, 128, kHasWindow>
                             : AttendTile<128, 128, kHasWindow>;
  }
  return tile_rows == 16   ? AttendTile<16, 64, kHasWindow>
         : tile_rows == 64 ? AttendTile<64, 64, kHasWindow>
                           : AttendTile<128, 64, kHasWindow>;
}

}  // namespace

bool HasPagedAttention(const PagedShape& shape) {
  return (shape.head_dim == 64 || shape.head_dim == 128 || shape.head_dim == 256) &&
         shape.num_heads % shape.num_kv_heads == 0 && shape.num_heads / shape.num_kv_heads <= 16;
}

PagedWorkspaceSizes PagedWorkspaceFor(const PagedShape& shape, const PagedRows& rows, bool is_graph,
                                      DeviceStream stream) {
  PagedWorkspaceSizes sizes;
  CheckCuda(flashinfer::PrefillPlanWorkspaceSize<int32_t>(
                sizes.float_bytes, sizes.int_bytes, Mutable(rows.row_starts),
                Mutable(rows.page_starts), static_cast<uint32_t>(rows.row_starts.back()),
                NumSequences(rows), static_cast<uint32_t>(shape.num_heads),
                static_cast<uint32_t>(shape.num_kv_heads), static_cast<uint32_t>(shape.head_dim),
                static_cast<uint32_t>(shape.head_dim), static_cast<uint32_t>(shape.page_tokens),
                is_graph, kBf16Bytes, WindowLeft(shape), /*fixed_split_size=*/-1,
                /*disable_split_kv=*/false, /*num_colocated_ctas=*/0,
                /*uniform_q_len=*/is_graph ? 1 : 0, stream, kBf16Bytes),
            "size of an attention plan");
  return sizes;
}

PagedPlan PlanPagedAttention(const PagedShape& shape, const PagedRows& rows, bool is_graph,
                             const PagedWorkspaceSizes& sizes, void* float_workspace,
                             void* int_workspace, DeviceStream stream) {
  // Pageable memory: when the call returns, the copy no longer reads it.
  std::vector<uint8_t> staging(sizes.int_bytes);
  flashinfer::PrefillPlanInfo info;
  CheckCuda(flashinfer::PrefillPlan<int32_t>(
                float_workspace, sizes.float_bytes, int_workspace, staging.data(), sizes.int_bytes,
                info, Mutable(rows.row_starts), Mutable(rows.page_starts),
                static_cast<uint32_t>(rows.row_starts.back()), NumSequences(rows),
                static_cast<uint32_t>(shape.num_heads), static_cast<uint32_t>(shape.num_kv_heads),
                static_cast<uint32_t>(shape.head_dim), static_cast<uint32_t>(shape.head_dim),
                static_cast<uint32_t>(shape.page_tokens), is_graph, kBf16Bytes, WindowLeft(shape),
                /*fixed_split_size=*/-1, /*disable_split_kv=*/false, /*num_colocated_ctas=*/0,
                /*uniform_q_len=*/is_graph ? 1 : 0, stream, kBf16Bytes),
            "plan of attention");
  PagedPlan plan;
  const std::vector<int64_t> numbers = info.ToVector();
  std::copy(numbers.begin(), numbers.end(), plan.numbers.begin());
  return plan;
}

void AttendPages(const PagedAttentionTask& task, const PagedPlan& plan, DeviceStream stream) {
  flashinfer::PrefillPlanInfo info;
  info.FromVector({plan.numbers.begin(), plan.numbers.end()});
  const PagedParams params = ParamsOf(task, info);
  nv_bfloat16* values = nullptr;
  float* sums = nullptr;
  if (info.split_kv) {
    values = flashinfer::GetPtrFromBaseOffset<nv_bfloat16>(task.float_workspace, info.v_offset);
    sums = flashinfer::GetPtrFromBaseOffset<float>(task.float_workspace, info.s_offset);
  }
  const AttendTileFunction attend = task.shape.window == 0
                                        ? TileFor<false>(task.shape.head_dim, info.cta_tile_q)
                                        : TileFor<true>(task.shape.head_dim, info.cta_tile_q);
  CheckCuda(attend(params, values, sums, stream), "attention over pages");
}

}  // namespace lathe::worker
