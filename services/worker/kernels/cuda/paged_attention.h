// Attention over a paged KV cache on a GPU, by FlashInfer's kernels (bf16, tensor cores), and what
// prepares it. Free of torch and of CUDA's headers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "services/worker/kernels/cuda/stream.h"

namespace lathe::worker {

// Of a model. Pages are those of KvCache: bf16 [pages, num_kv_heads, page_tokens, head_dim], keys
// and values alike.
struct PagedShape {
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t page_tokens = 0;
};

// Whether there are kernels for it in this build: heads of 64 or 128 numbers, at most 16 query
// heads per key head.
bool HasPagedAttention(const PagedShape& shape);

// Which sequences have which rows and pages, on the host. S sequences, T rows.
struct PagedRows {
  std::vector<int32_t> row_starts;   // [S + 1], the last is T
  std::vector<int32_t> page_starts;  // [S + 1]
};

// How FlashInfer divides the work of one pass; the same for all layers. Plain numbers of its
// PrefillPlanInfo.
struct PagedPlan {
  std::array<int64_t, 15> numbers = {};
};

struct PagedWorkspaceSizes {
  size_t float_bytes = 0;
  size_t int_bytes = 0;
};

// For plans that a recorded graph replays (`is_graph`: every sequence has one row) the sizes depend
// on the number of sequences alone.
PagedWorkspaceSizes PagedWorkspaceFor(const PagedShape& shape, const PagedRows& rows, bool is_graph,
                                      DeviceStream stream);

// Plans into device memory of those sizes. Waits until its copy to the device has left the host.
PagedPlan PlanPagedAttention(const PagedShape& shape, const PagedRows& rows, bool is_graph,
                             const PagedWorkspaceSizes& sizes, void* float_workspace,
                             void* int_workspace, DeviceStream stream);

// All pointers are the device's; bf16 as uint16_t.
struct PagedAttentionTask {
  PagedShape shape;
  int64_t num_sequences;
  uint16_t* q;     // [T, num_heads, head_dim]
  uint16_t* keys;  // pages of one layer
  uint16_t* values;
  int32_t* row_starts;        // [num_sequences + 1]
  int32_t* page_starts;       // [num_sequences + 1]
  int32_t* pages;             // [page_starts of the last]
  int32_t* last_page_tokens;  // [num_sequences], at least 1
  void* float_workspace;
  void* int_workspace;
  uint16_t* out;  // [T, num_heads, head_dim]
};

// Causal: the rows of a sequence are its last ones.
void AttendPages(const PagedAttentionTask& task, const PagedPlan& plan, DeviceStream stream);

// All pointers are the device's.
struct NormRopeWriteTask {
  PagedShape shape;
  int64_t num_rows;
  const float* q;  // [T, num_heads, head_dim] in rows of `row_stride` numbers; so k and v
  const float* k;
  const float* v;
  int64_t row_stride;
  const float* q_weight;  // [head_dim]
  const float* k_weight;
  float eps;
  const float* cos;  // [positions, head_dim / 2]
  const float* sin;
  const int64_t* positions;  // [T]
  const int32_t* slots;      // [T]: page · page_tokens + place of the row's key and value
  uint16_t* out_q;           // [T, num_heads, head_dim] bf16
  uint16_t* keys;            // pages of one layer
  uint16_t* values;
};

// NormRope of queries and keys in fp32, rounded; keys and values go to their pages.
void NormRopeWrite(const NormRopeWriteTask& task, DeviceStream stream);

}  // namespace lathe::worker
