// Low-rank updates of a few rows, each with its own adapter, on a GPU. Free of torch and of CUDA's
// headers.
#pragma once

#include <cstdint>

#include "services/worker/kernels/cuda/stream.h"
#include "services/worker/spec/activation.h"

namespace lathe::worker {

// One linear of one adapter. `a` is null if the adapter does not have it.
struct LoraSlotEntry {
  const float* a = nullptr;    // [rank, in_features]
  const float* b_t = nullptr;  // [rank, out_features]
  int64_t rank = 0;
  float scaling = 0;

  bool operator==(const LoraSlotEntry&) const = default;
};

// One of several linears that read the same x.
struct LoraRowsPart {
  void* y = nullptr;  // [num_rows, out_features] in rows of `y_stride` numbers
  int64_t y_stride = 0;
  int64_t out_features = 0;
  const LoraSlotEntry* entries = nullptr;  // those of slot 0; see slot_stride
  // Added to y before the adapters' products, in all rows. Null: nothing is added.
  const float* residual = nullptr;  // [num_rows, out_features] in rows of `residual_stride` numbers
  int64_t residual_stride = 0;
  const float* bias = nullptr;  // [out_features]
};

// All pointers are device pointers.
struct LoraRowsTask {
  static constexpr int kMostParts = 3;

  const void* x = nullptr;  // [num_rows, in_features] in rows of `x_stride` numbers
  bool x_is_bf16 = false;   // otherwise fp32
  bool y_is_bf16 = false;   // of all parts; otherwise fp32
  int64_t x_stride = 0;
  int64_t in_features = 0;
  int64_t num_rows = 0;
  const int32_t* row_slots = nullptr;  // [num_rows]; -1: no adapter
  int64_t slot_stride = 0;             // entries from one slot to the next
  LoraRowsPart parts[kMostParts];
  int num_parts = 0;
  int64_t most_rank = 0;      // largest rank of all entries
  float* products = nullptr;  // [num_rows, num_parts, most_rank], scratch memory
  // Null, or [num_rows, out_features] of y's dtype in rows of `activated_stride` numbers. It
  // receives activation(first part) * second part, and no part is written: the two parts are the
  // gate and up of an MLP.
  void* activated = nullptr;
  int64_t activated_stride = 0;
  Activation activation = Activation::kSilu;
};

// part.y += residual + bias + (x A^T) B^T * scaling, in this order and rounded to y's dtype after
// each: the bits are those of a launch for each step. Sums are fp32 in a fixed order: a row's bits
// do not depend on other rows. The launches depend only on the shapes, so that one recorded graph
// serves every mix of adapters.
void AddLoraRowsOnDevice(const LoraRowsTask& task, DeviceStream stream);

}  // namespace lathe::worker
