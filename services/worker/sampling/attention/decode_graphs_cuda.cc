#include <algorithm>
#include <bit>
#include <exception>
#include <map>
#include <optional>
#include <utility>

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "libs/common/logging/logging.h"
#include "services/worker/sampling/attention/decode_graphs.h"

namespace lathe::worker {
namespace {

class CudaDecodeGraphs : public DecodeGraphs {
 public:
  CudaDecodeGraphs(const Model& model, KvCache& cache, int64_t most_rows)
      : model_(model),
        most_rows_(static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(most_rows)))),
        buffers_(model, cache, most_rows_),
        pool_(at::cuda::graph_pool_handle()),
        recording_stream_(c10::cuda::getStreamFromPool(false, model.device().index())) {}

  at::Tensor Run(std::span<const DecodeRow> rows) override {
    const auto num_rows = static_cast<int64_t>(rows.size());
    if (num_rows == 0 || num_rows > most_rows_) return {};
    const int64_t most_rank = buffers_.FillAdapters(rows);
    const auto padded = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(num_rows)));
    const auto [found, is_new] = recordings_.try_emplace({padded, most_rank});
    Recording& recording = found->second;
    if (is_new) recording.pass = buffers_.PassOf(padded, /*has_lora=*/most_rank > 0);
    if (recording.has_failed) return {};
    if (recording.graph.has_value()) {
      buffers_.SetInputs(rows, recording.pass);
    } else if (!TryRecord(rows, recording)) {
      return {};
    }
    buffers_.Replay([&] { recording.graph->replay(); });
    return buffers_.logits().narrow(0, 0, num_rows);
  }

 private:
  struct Recording {
    DecodeBuffers::Pass pass;
    std::optional<at::cuda::CUDAGraph> graph;
    bool has_failed = false;  // passes of this size run without a graph
  };

  // Ends a recording during which Forward threw. If the graph were destroyed instead, its stream
  // would keep recording, and the allocator would keep querying the stream. Ending an incomplete
  // recording may fail too. That error is only logged, because the first one says more.
  static void EndBrokenRecording(at::cuda::CUDAGraph& graph) {
    try {
      graph.capture_end();
    } catch (const std::exception& error) {
      LogWarn("ending the broken recording of a decode pass failed", {{"error", error.what()}});
    }
  }

  // Returns false if the pass cannot be recorded, for example for lack of memory. Requests do not
  // fail for that: the caller computes the pass without a graph. Ranks of tp must compute alike, so
  // there the error ends the pass.
  bool TryRecord(std::span<const DecodeRow> rows, Recording& recording) {
    try {
      buffers_.SetInputs(rows, recording.pass);
      Record(recording);
      return true;
    } catch (const std::exception& error) {
      recording.graph.reset();
      recording.pass.passes.clear();
      if (!model_.tp().is_alone()) throw;
      recording.has_failed = true;
      LogWarn("a decode pass was not recorded, passes of its size are slower from now on",
              {{"rows", recording.pass.num_rows},
               {"has_lora", recording.pass.has_lora},
               {"error", error.what()}});
      return false;
    }
  }

  // Records on a separate stream, as CUDA requires. A first, unrecorded run lets libraries load
  // their kernels and allocate workspaces. It writes the same keys and values as the replay.
  void Record(Recording& recording) {
    const c10::DeviceIndex device = model_.device().index();
    c10::cuda::getCurrentCUDAStream(device).synchronize();
    const c10::cuda::CUDAStreamGuard guard(recording_stream_);
    buffers_.Forward(recording.pass);
    recording_stream_.synchronize();
    recording.graph.emplace();
    recording.graph->capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
    try {
      buffers_.Forward(recording.pass);
    } catch (...) {
      EndBrokenRecording(*recording.graph);
      throw;
    }
    recording.graph->capture_end();
    recording_stream_.synchronize();
  }

  const Model& model_;
  const int64_t most_rows_;
  DecodeBuffers buffers_;  // outside the graphs' pool
  // Memory pool of all graphs. They share it because one runs at a time and no later work reads it.
  at::cuda::MempoolId_t pool_;
  // One for all recordings: cuBLAS and the allocator keep memory for each stream.
  const c10::cuda::CUDAStream recording_stream_;
  std::map<std::pair<int64_t, int64_t>, Recording> recordings_;  // by rows and most rank
};

}  // namespace

std::unique_ptr<DecodeGraphs> DecodeGraphs::Create(const Model& model, KvCache& cache,
                                                   int64_t most_rows) {
  if (model.device().is_cpu() || cache.attention_arithmetic() != MatmulArithmetic::kBf16) {
    return nullptr;
  }
  return std::make_unique<CudaDecodeGraphs>(model, cache, most_rows);
}

}  // namespace lathe::worker
