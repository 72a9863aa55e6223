#include <algorithm>
#include <bit>
#include <exception>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "libs/common/logging/logging.h"
#include "services/worker/layers/device_stream.h"
#include "services/worker/lora/lora_slots.h"
#include "services/worker/models/layer_steps.h"
#include "services/worker/sampling/attention/decode_graphs.h"
#include "services/worker/sampling/attention/paged_device_attention.h"

namespace lathe::worker {
namespace {

int64_t PagesFor(const Model& model) {
  return KvCache::BlocksFor(model.spec().max_position_embeddings);
}

class CudaDecodeGraphs : public DecodeGraphs {
 public:
  CudaDecodeGraphs(const Model& model, KvCache& cache, int64_t most_rows)
      : model_(model),
        cache_(cache),
        most_rows_(static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(most_rows)))),
        lora_(model.part().local, most_rows_, model.device()),
        tokens_and_positions_(OnDevice({2 * most_rows_}, at::kLong)),
        numbers_(OnDevice({4 * most_rows_ + 2 + most_rows_ * PagesFor(model)}, at::kInt)),
        logits_(OnDevice({most_rows_, model.part().local.vocab_size}, at::kFloat)),
        pool_(at::cuda::graph_pool_handle()),
        recording_stream_(c10::cuda::getStreamFromPool(false, model.device().index())) {
    // Allocates before any recording, because memory allocated by a recording belongs to its pool.
    // The loader refuses models whose layers have other heads.
    const AttentionSpec& spec = model.part().local.layers[0].attention;
    cache_.Allocate(at::empty({0, spec.num_kv_heads, spec.head_dim},
                              at::TensorOptions(at::kFloat).device(model.device())));
  }

  at::Tensor Run(std::span<const DecodeRow> rows) override {
    const auto num_rows = static_cast<int64_t>(rows.size());
    if (num_rows == 0 || num_rows > most_rows_) return {};
    std::vector<const AdapterWeights*> adapters;
    for (const DecodeRow& row : rows) adapters.push_back(row.adapter);
    const bool has_lora = std::any_of(adapters.begin(), adapters.end(),
                                      [](const AdapterWeights* a) { return a != nullptr; });
    if (has_lora && !lora_.Fill(adapters)) return {};
    const auto padded = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(num_rows)));
    Recording& recording = recordings_[{padded, has_lora}];
    if (recording.has_failed) return {};
    if (recording.graph.has_value()) {
      SetInputs(rows, padded, recording);
    } else if (!TryRecord(rows, padded, has_lora, recording)) {
      return {};
    }
    recording.graph->replay();
    return logits_.narrow(0, 0, num_rows);
  }

 private:
  struct PlannedPass {
    PagedPass pass;
    PagedWorkspaceSizes sizes;
  };

  struct Recording {
    at::Tensor tokens;     // [padded] int64
    at::Tensor positions;  // [padded] int64
    PagedInputs inputs;
    PagedRows rows;                         // of the next run
    std::map<int64_t, PlannedPass> passes;  // by window; made by the run before the recording
    std::optional<at::cuda::CUDAGraph> graph;
    bool has_failed = false;  // passes of this size run without a graph
  };

  at::Tensor OnDevice(at::IntArrayRef sizes, at::ScalarType dtype) const {
    return at::zeros(sizes, at::TensorOptions(dtype).device(model_.device()));
  }

  template <typename T>
  static void Set(const at::Tensor& to, const std::vector<T>& from) {
    to.narrow(0, 0, static_cast<int64_t>(from.size())).copy_(at::tensor(from, to.scalar_type()));
  }

  // Sets the inputs of a pass of `padded` rows to views of the buffers, at offsets that depend on
  // `padded` only.
  void Place(int64_t padded, Recording& recording) {
    recording.tokens = tokens_and_positions_.narrow(0, 0, padded);
    recording.positions = tokens_and_positions_.narrow(0, padded, padded);
    PagedInputs& inputs = recording.inputs;
    inputs.row_starts = numbers_.narrow(0, 0, padded + 1);
    inputs.page_starts = numbers_.narrow(0, padded + 1, padded + 1);
    inputs.last_page_tokens = numbers_.narrow(0, 2 * padded + 2, padded);
    inputs.slots = numbers_.narrow(0, 3 * padded + 2, padded);
    inputs.pages = numbers_.narrow(0, 4 * padded + 2, padded * PagesFor(model_));
  }

  // Makes FlashInfer's plan for the lengths of the next run.
  void Plan(const PagedRows& rows, PlannedPass& planned) {
    PagedPass& pass = planned.pass;
    pass.plan = PlanPagedAttention(
        pass.shape, rows, /*is_graph=*/true, planned.sizes, pass.float_workspace.mutable_data_ptr(),
        pass.int_workspace.mutable_data_ptr(), CurrentStream(model_.device()));
  }

  // Returns the pass of layers like this one. The run before a recording makes it: a recording must
  // neither plan nor allocate.
  const PagedPass& PassFor(const AttentionSpec& spec, Recording& recording) {
    const auto found = recording.passes.find(spec.window);
    if (found != recording.passes.end()) return found->second.pass;
    PlannedPass planned;
    PagedPass& pass = planned.pass;
    pass.shape = PagedShapeOf(spec);
    pass.inputs = recording.inputs;
    planned.sizes = PagedWorkspaceFor(pass.shape, recording.rows, /*is_graph=*/true,
                                      CurrentStream(model_.device()));
    pass.float_workspace = OnDevice({static_cast<int64_t>(planned.sizes.float_bytes)}, at::kByte);
    pass.int_workspace = OnDevice({static_cast<int64_t>(planned.sizes.int_bytes)}, at::kByte);
    Plan(recording.rows, planned);
    return recording.passes.emplace(spec.window, std::move(planned)).first->second.pass;
  }

  // Copies the inputs to the device in two transfers and plans the passes for their lengths.
  void SetInputs(std::span<const DecodeRow> rows, int64_t padded, Recording& recording) {
    std::vector<int64_t> tokens(2 * padded, 0);
    PagedBatch batch;
    for (size_t row = 0; row < rows.size(); ++row) {
      tokens[row] = rows[row].token;
      tokens[padded + row] = rows[row].kv->length - 1;
      batch.Add({.kv = rows[row].kv, .num_rows = 1});
    }
    for (auto row = static_cast<int64_t>(rows.size()); row < padded; ++row) {
      batch.AddPadding(cache_.spare_page());
    }
    if (!recording.tokens.defined()) Place(padded, recording);
    std::vector<int32_t> numbers;
    for (const auto* part : {&batch.rows.row_starts, &batch.rows.page_starts,
                             &batch.last_page_tokens, &batch.slots, &batch.pages}) {
      numbers.insert(numbers.end(), part->begin(), part->end());
    }
    Set(tokens_and_positions_, tokens);
    Set(numbers_, numbers);
    recording.rows = std::move(batch.rows);
    for (auto& [window, planned] : recording.passes) Plan(recording.rows, planned);
  }

  // Runs the model and writes to the first rows of logits_.
  void Forward(int64_t padded, bool has_lora, Recording& recording) {
    const std::vector<Segment> segments = {
        {.begin = 0, .end = padded, .slots = has_lora ? &lora_ : nullptr}};
    const PackedRows rows = {
        .tokens = recording.tokens, .positions = recording.positions, .segments = segments};
    PagedDeviceAttention attention(cache_, [&](const AttentionSpec& spec) -> const PagedPass& {
      return PassFor(spec, recording);
    });
    const at::Tensor x = RunLayers(model_, rows, attention);
    logits_.narrow(0, 0, padded).copy_(model_.Logits(model_.FinalNorm(x), segments));
  }

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
  bool TryRecord(std::span<const DecodeRow> rows, int64_t padded, bool has_lora,
                 Recording& recording) {
    try {
      SetInputs(rows, padded, recording);
      Record(padded, has_lora, recording);
      return true;
    } catch (const std::exception& error) {
      recording.graph.reset();
      recording.passes.clear();
      if (!model_.tp().is_alone()) throw;
      recording.has_failed = true;
      LogWarn("a decode pass was not recorded, passes of its size are slower from now on",
              {{"rows", padded}, {"has_lora", has_lora}, {"error", error.what()}});
      return false;
    }
  }

  // Records on a separate stream, as CUDA requires. A first, unrecorded run lets libraries load
  // their kernels and allocate workspaces. It writes the same keys and values as the replay.
  void Record(int64_t padded, bool has_lora, Recording& recording) {
    const c10::DeviceIndex device = model_.device().index();
    c10::cuda::getCurrentCUDAStream(device).synchronize();
    const c10::cuda::CUDAStreamGuard guard(recording_stream_);
    Forward(padded, has_lora, recording);
    recording_stream_.synchronize();
    recording.graph.emplace();
    recording.graph->capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
    try {
      Forward(padded, has_lora, recording);
    } catch (...) {
      EndBrokenRecording(*recording.graph);
      throw;
    }
    recording.graph->capture_end();
    recording_stream_.synchronize();
  }

  const Model& model_;
  KvCache& cache_;
  const int64_t most_rows_;
  LoraSlots lora_;
  at::Tensor tokens_and_positions_;  // [2 most_rows] int64
  at::Tensor numbers_;               // int32: PagedInputs of a pass, concatenated
  at::Tensor logits_;                // [most_rows, V] fp32, outside the graphs' pool
  // Memory pool of all graphs. They share it because one runs at a time and no later work reads it.
  at::cuda::MempoolId_t pool_;
  // One for all recordings: cuBLAS and the allocator keep memory for each stream.
  const c10::cuda::CUDAStream recording_stream_;
  std::map<std::pair<int64_t, bool>, Recording> recordings_;  // by rows and has_lora
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
