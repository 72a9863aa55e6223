// Hot file: the steps between the projections and attention, in one launch.
#include "services/worker/kernels/cuda/launch.cuh"
#include "services/worker/kernels/cuda/numbers.cuh"
#include "services/worker/kernels/cuda/paged_attention.h"

namespace lathe::worker {
namespace {

constexpr int kLanes = 32;
constexpr int kWarps = 8;  // heads per block

// Each warp computes one head of one row: queries, then keys, then values. Lane l holds the pairs
// (i, i + D/2) for i = l, l + 32: rope rotates each pair.
template <typename T, int kHeadDim>
__global__ void __launch_bounds__(kLanes* kWarps) PrepareAndWriteKernel(PrepareAndWriteTask task) {
  constexpr int kHalf = kHeadDim / 2;
  constexpr int kPairs = kHalf / kLanes;
  const int64_t num_heads = task.shape.num_heads;
  const int64_t num_kv_heads = task.shape.num_kv_heads;
  const int64_t head = int64_t{blockIdx.x} * kWarps + threadIdx.x / kLanes;
  const int64_t row = blockIdx.y;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  if (head >= num_heads + 2 * num_kv_heads) return;
  const bool is_q = head < num_heads;
  const bool is_v = head >= num_heads + num_kv_heads;
  const int64_t own = is_q ? head : (head - num_heads) % num_kv_heads;
  const T* from = static_cast<const T*>(is_q ? task.q : (is_v ? task.v : task.k)) +
                  row * task.row_stride + own * kHeadDim;
  float first[kPairs];
  float second[kPairs];
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    first[i] = ToFloat(from[lane + i * kLanes]);
    second[i] = ToFloat(from[kHalf + lane + i * kLanes]);
    squares += first[i] * first[i] + second[i] * second[i];
  }
  const float* weight = is_q ? task.q_weight : task.k_weight;
  if (!is_v && weight != nullptr) {
    for (int half = kLanes / 2; half > 0; half /= 2) {
      squares += __shfl_xor_sync(0xffffffffu, squares, half);
    }
    const float scale = rsqrtf(squares / kHeadDim + task.eps);
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const int at = lane + i * kLanes;
      first[i] = first[i] * scale * weight[at];
      second[i] = second[i] * scale * weight[kHalf + at];
    }
  }
  if (!is_v && task.cos != nullptr) {
    const int64_t angle = task.positions[row] * kHalf;
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const int at = lane + i * kLanes;
      const float x = first[i];
      const float y = second[i];
      const float cos = task.cos[angle + at];
      const float sin = task.sin[angle + at];
      first[i] = x * cos - y * sin;
      second[i] = y * cos + x * sin;
    }
  }
  const int64_t slot = task.slots[row];
  const int64_t page_tokens = task.shape.page_tokens;
  const int64_t in_pages =
      ((slot / page_tokens * num_kv_heads + own) * page_tokens + slot % page_tokens) * kHeadDim;
  uint16_t* to = is_q   ? task.out_q + (row * num_heads + own) * kHeadDim
                 : is_v ? task.values + in_pages
                        : task.keys + in_pages;
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    to[lane + i * kLanes] = __bfloat16_as_ushort(__float2bfloat16(first[i]));
    to[kHalf + lane + i * kLanes] = __bfloat16_as_ushort(__float2bfloat16(second[i]));
  }
}

template <typename T>
auto KernelFor(int64_t head_dim) {
  return head_dim == 64    ? PrepareAndWriteKernel<T, 64>
         : head_dim == 128 ? PrepareAndWriteKernel<T, 128>
                           : PrepareAndWriteKernel<T, 256>;
}

}  // namespace

void PrepareAndWrite(const PrepareAndWriteTask& task, DeviceStream stream) {
  if (task.num_rows == 0) return;
  const auto kernel = task.is_bf16 ? KernelFor<__nv_bfloat16>(task.shape.head_dim)
                                   : KernelFor<float>(task.shape.head_dim);
  const int64_t row_bytes = task.row_stride * (task.is_bf16 ? 2 : 4);
  const int64_t num_heads = task.shape.num_heads + 2 * task.shape.num_kv_heads;
  // A grid has at most 65,535 rows.
  constexpr int64_t kMostRows = 65535;
  for (int64_t first = 0; first < task.num_rows; first += kMostRows) {
    PrepareAndWriteTask part = task;
    part.num_rows = task.num_rows - first < kMostRows ? task.num_rows - first : kMostRows;
    for (const void** rows : {&part.q, &part.k, &part.v}) {
      *rows = static_cast<const char*>(*rows) + first * row_bytes;
    }
    if (part.positions != nullptr) part.positions += first;
    part.slots += first;
    part.out_q += first * task.shape.num_heads * task.shape.head_dim;
    const dim3 grid(static_cast<unsigned>((num_heads + kWarps - 1) / kWarps),
                    static_cast<unsigned>(part.num_rows));
    Launch("preparation of queries and keys", kernel, {grid, kLanes * kWarps}, stream, part);
  }
}

}  // namespace lathe::worker
