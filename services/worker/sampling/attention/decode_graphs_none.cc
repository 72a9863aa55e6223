// Replaces decode_graphs_cuda.cc in builds without CUDA.
#include "services/worker/sampling/attention/decode_graphs.h"

namespace lathe::worker {

std::unique_ptr<DecodeGraphs> DecodeGraphs::Create(const Model&, KvCache&, int64_t) {
  return nullptr;
}

}  // namespace lathe::worker
