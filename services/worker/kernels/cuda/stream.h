// A stream of a GPU, without CUDA's headers.
#pragma once

struct CUstream_st;  // a cudaStream_t is a pointer to it

namespace lathe::worker {

using DeviceStream = CUstream_st*;

}  // namespace lathe::worker
