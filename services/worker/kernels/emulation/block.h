// The interface of an emulated block to its threads. Kernels reach it through cuda_runtime.h.
#pragma once

#include <cstdint>
#include <source_location>

namespace lathe::worker::emulation {

// A thread's or block's place; CUDA's uint3.
struct Index {
  unsigned x = 0;
  unsigned y = 0;
  unsigned z = 0;
};

// CUDA's dim3.
struct Extent {
  constexpr Extent(unsigned x_count = 1, unsigned y_count = 1, unsigned z_count = 1)
      : x(x_count), y(y_count), z(z_count) {}

  int64_t count() const { return int64_t{x} * y * z; }

  unsigned x;
  unsigned y;
  unsigned z;
};

// The indices of the running thread.
struct Indices {
  Index thread;
  Index block;
  Extent block_dim;
  Extent grid_dim;
};
extern Indices indices;

inline constexpr int kWarpLanes = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

// Returns the running thread's place in its warp.
int Lane();

// Barriers. All threads must call them at one place of the source, and none may have ended before.
// Then every access before a barrier happens before every access after it.
void WaitForBlock(const std::source_location& where);
void WaitForWarp(unsigned lanes, const std::source_location& where);

// Returns the number that another lane passes. Orders no accesses, as on a GPU. Only all lanes of a
// warp can be named; those that have ended take no part, and nobody may ask for their numbers.
uint64_t Exchange(unsigned lanes, uint64_t number, int from_lane,
                  const std::source_location& where);

int AtomicAdd(int* address, int value);

}  // namespace lathe::worker::emulation
