// Attention over a paged KV cache on a GPU with FlashInfer's kernels (bf16, tensor cores), and the
// preparation for it. Free of torch and of CUDA's headers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "services/worker/kernels/cuda/stream.h"

namespace lathe::worker {

// Shape of a model's attention. Pages are those of KvCache: bf16 [pages, num_kv_heads, page_tokens,
// head_dim], the same for keys and values.
struct PagedShape {
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t page_tokens = 0;
  int64_t window = 0;  // as in AttentionSpec
};

// Returns true if this build has kernels for the shape: heads of 64, 128 or 256 numbers, at most 16
// query heads per KV head.
bool HasPagedAttention(const PagedShape& shape);

// Rows and pages of each sequence, on the host. S sequences, T rows.
struct PagedRows {
  std::vector<int32_t> row_starts;   // [S + 1], the last is T
  std::vector<int32_t> page_starts;  // [S + 1]
};

// FlashInfer's division of the work of one pass; the same for all layers with one window. The
// numbers are those of its PrefillPlanInfo.
struct PagedPlan {
  std::array<int64_t, 15> numbers = {};
};

struct PagedWorkspaceSizes {
  size_t float_bytes = 0;
  size_t int_bytes = 0;
};

// Returns the workspace sizes. For plans that a recorded graph replays (`is_graph`: every sequence
// has one row) they depend only on the number of sequences.
PagedWorkspaceSizes PagedWorkspaceFor(const PagedShape& shape, const PagedRows& rows, bool is_graph,
                                      DeviceStream stream);

// Writes a plan into the workspaces. Returns when its copy to the device has left host memory.
PagedPlan PlanPagedAttention(const PagedShape& shape, const PagedRows& rows, bool is_graph,
                             const PagedWorkspaceSizes& sizes, void* float_workspace,
                             void* int_workspace, DeviceStream stream);

// All pointers are device pointers; bf16 as uint16_t.
struct PagedAttentionTask {
  PagedShape shape;
  float scale;  // factor of the scores
  int64_t num_sequences;
  uint16_t* q;     // [T, num_heads, head_dim]
  uint16_t* keys;  // pages of one layer
  uint16_t* values;
  int32_t* row_starts;        // [num_sequences + 1]
  int32_t* page_starts;       // [num_sequences + 1]
  int32_t* pages;             // [page_starts of the last sequence]
  int32_t* last_page_tokens;  // [num_sequences], at least 1
  void* float_workspace;
  void* int_workspace;
  uint16_t* out;  // [T, num_heads, head_dim]
};

// Causal: a sequence's rows are its last positions.
void AttendPages(const PagedAttentionTask& task, const PagedPlan& plan, DeviceStream stream);

// All pointers are device pointers.
struct PrepareAndWriteTask {
  PagedShape shape;
  int64_t num_rows;
  const void* q;  // [T, num_heads, head_dim] in rows of `row_stride` numbers; k and v likewise
  const void* k;
  const void* v;
  bool is_bf16;  // q, k and v; otherwise they are fp32
  int64_t row_stride;
  const float* q_weight;  // [head_dim]; both null: no norm
  const float* k_weight;
  float eps;
  const float* cos;  // [positions, head_dim / 2]; both null: no rope
  const float* sin;
  const int64_t* positions;  // [T], for rope
  const int32_t* slots;      // [T]: page · page_tokens + place of the row's key and value
  uint16_t* out_q;           // [T, num_heads, head_dim] bf16
  uint16_t* keys;            // pages of one layer
  uint16_t* values;
};

// Applies PrepareQk to queries and keys in fp32 and rounds to bf16. Keys and values go to pages.
void PrepareAndWrite(const PrepareAndWriteTask& task, DeviceStream stream);

}  // namespace lathe::worker
