// Runs a script of operations on the compute library and writes every result to one safetensors
// file, for tests that compare them with HF Transformers and PEFT.
//   lathe_parity_driver SCRIPT.json OUT.safetensors
// Prints one JSON object: {"errors": {request: message}, "metrics": {request: {name: value}},
// "steps": [{name: value}], "counters": {...}, "seconds": [per op], "content_hash": …}. Among the
// counters, reserved_bytes is the most that a pass reserved, and peak_bytes the most that a train
// operation had in tensors beside those before it.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <nlohmann/json.hpp>

#include "libs/common/status_macros.h"
#include "services/worker/formats/safetensors/safetensors.h"
#include "services/worker/formats/safetensors/safetensors_writer.h"
#include "services/worker/lora/adapter.h"
#include "services/worker/lora/adapter_layout.h"
#include "services/worker/models/layer_steps.h"
#include "services/worker/models/load_model.h"
#include "services/worker/models/packed_attention.h"
#include "services/worker/torch/aten.h"
#include "services/worker/training/adamw.h"
#include "services/worker/training/trainer.h"
#include "tests/parity/parity_script.h"

namespace lathe::worker {
namespace {

// Counts the bytes of torch's CPU tensors.
class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    auto owned = std::make_unique<Block>(Block{this, other_.allocate(bytes), bytes});
    in_use_ += bytes;
    most_ = std::max(most_.load(), in_use_.load());
    void* const data = owned->data.get();
    return {data, owned.release(), &Free, at::Device(at::kCPU)};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  // Starts to measure. Returns the bytes that are in use.
  size_t Begin() {
    most_ = in_use_.load();
    return most_;
  }
  size_t most() const { return most_; }

 private:
  struct Block {
    CountingAllocator* allocator;
    c10::DataPtr data;
    size_t bytes;
  };
  static void Free(void* context) {
    const std::unique_ptr<Block> owned(static_cast<Block*>(context));
    owned->allocator->in_use_ -= owned->bytes;
  }

  c10::Allocator& other_ = *c10::GetDefaultCPUAllocator();
  std::atomic<size_t> in_use_ = 0;
  std::atomic<size_t> most_ = 0;
};

// Lives as long as the process, like all allocators of c10.
CountingAllocator& TensorBytes() {
  static auto* const allocator = new CountingAllocator;
  return *allocator;
}

class ParityDriver {
 public:
  ParityDriver(const Model& model, const ParityScript& script)
      : model_(model),
        trainer_(model, adapters_,
                 {.token_budget = script.token_budget,
                  .head_chunk_elements = script.head_chunk_elements}) {}

  absl::Status Run(const LogitsOp& op) {
    const auto adapter = adapters_.Find(op.model_id);
    const auto weights = adapter == nullptr ? nullptr : adapter->Publish();
    const PackedRows rows = RowsOf(op.tokens, weights.get(), /*gradient_index=*/-1);
    PackedAttention attention(rows, model_.attention_arithmetic());
    const at::Tensor x = RunLayers(model_, rows, attention);
    results_.push_back({op.name, model_.Logits(model_.FinalNorm(x), rows.segments).to(at::kCPU)});
    return absl::OkStatus();
  }

  absl::Status Run(const CreateOp& op) {
    adapters_.Put(op.model_id, std::make_shared<Adapter>(model_.part(), op.lora, model_.device()));
    return absl::OkStatus();
  }

  absl::Status Run(const SetWeightsOp& op) {
    const auto adapter = adapters_.Find(op.model_id);
    ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open(op.file));
    for (const AdapterMatrix& m : AdapterLayout(adapter->model(), adapter->lora())) {
      ASSIGN_OR_RETURN(const at::Tensor value, file.Read(m.name()));
      m.Of(adapter->MutableParameters()).copy_(value);
    }
    return absl::OkStatus();
  }

  absl::Status Run(const InputGradientsOp& op) {
    const auto adapter = adapters_.Find(op.model_id);
    const auto weights = adapter->Publish();
    const PackedRows rows = RowsOf(op.tokens, weights.get(), /*gradient_index=*/0);
    std::vector<std::unique_ptr<LayerSaved>> saved(model_.spec().num_layers());
    at::Tensor x = model_.Embed(rows);
    for (size_t layer = 0; layer < saved.size(); ++layer) {
      x = model_.LayerForwardSaving(static_cast<int64_t>(layer), x, rows, &saved[layer]);
    }
    ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open(op.file));
    ASSIGN_OR_RETURN(const at::Tensor dlogits, file.Read("dlogits"));
    AdapterGradients unused = adapter->MakeGradients();
    std::vector<AdapterGradients*> gradients = {&unused};
    const at::Tensor dh = model_.LogitsBackward(model_.FinalNorm(x), dlogits.to(model_.device()),
                                                rows.segments, gradients);
    at::Tensor dx = model_.FinalNormBackward(x, dh);
    for (int64_t layer = model_.spec().num_layers() - 1; layer >= 0; --layer) {
      dx = model_.LayerBackward(layer, dx, rows, std::move(saved[layer]), gradients);
      results_.push_back({absl::StrCat(op.name, ".", layer), dx.clone().to(at::kCPU)});
    }
    return absl::OkStatus();
  }

  absl::Status Run(const TrainOp& op) {
    const size_t bytes_before = TensorBytes().Begin();
    trainer_.Begin(op.batch);
    while (trainer_.RunUnit()) {
    }
    peak_bytes_ = std::max(peak_bytes_, TensorBytes().most() - bytes_before);
    for (FinishedRequest& request : trainer_.TakeFinished()) {
      const std::string key = absl::StrCat(op.name, ".", request.request_id);
      if (!request.output.ok()) {
        summary_["errors"][key] = std::string(request.output.status().message());
        continue;
      }
      for (const NamedMetric& metric : request.output->metrics) {
        summary_["metrics"][key][metric.name] = metric.value;
      }
      for (size_t i = 0; i < request.output->logprobs.size(); ++i) {
        results_.push_back({absl::StrCat(key, ".", i),
                            at::tensor(at::ArrayRef<float>(request.output->logprobs[i]))});
      }
    }
    return absl::OkStatus();
  }

  absl::Status Run(const DumpOp& op) {
    const auto adapter = adapters_.Find(op.model_id);
    const at::Tensor& flat = op.gradient ? adapter->gradient : adapter->parameters();
    for (const AdapterMatrix& m : AdapterLayout(adapter->model(), adapter->lora())) {
      results_.push_back({absl::StrCat(op.name, ".", m.name()),
                          m.Of(flat).to(at::kCPU).clone(at::MemoryFormat::Contiguous)});
    }
    return absl::OkStatus();
  }

  absl::Status Run(const StepOp& op) {
    nlohmann::json metrics;
    ASSIGN_OR_RETURN(const std::vector<NamedMetric> step,
                     ApplyAdamW(*adapters_.Find(op.model_id), op.adam));
    for (const NamedMetric& metric : step) {
      metrics[metric.name] = metric.value;
    }
    summary_["steps"].push_back(metrics);
    return absl::OkStatus();
  }

  absl::Status RunAll(const ParityScript& script) {
    for (const ParityOp& op : script.ops) {
      const auto start = std::chrono::steady_clock::now();
      RETURN_IF_ERROR(std::visit([this](const auto& o) { return Run(o); }, op));
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      summary_["seconds"].push_back(took.count());
    }
    summary_["counters"] = {{"passes", trainer_.counters().train_passes},
                            {"tokens", trainer_.counters().train_tokens},
                            {"reserved_bytes", trainer_.counters().arena_peak_bytes},
                            {"peak_bytes", peak_bytes_}};
    return absl::OkStatus();
  }

  const std::vector<NamedTensor>& results() const { return results_; }
  const nlohmann::json& summary() const { return summary_; }

 private:
  PackedRows RowsOf(const std::vector<int64_t>& tokens, const AdapterWeights* adapter,
                    int64_t gradient_index) const {
    const auto size = static_cast<int64_t>(tokens.size());
    PackedRows rows;
    rows.tokens = at::tensor(at::ArrayRef<int64_t>(tokens)).to(model_.device());
    rows.positions = at::arange(size, at::TensorOptions(at::kLong).device(model_.device()));
    rows.cu_seqlens = {0, size};
    rows.segments = {{.end = size, .adapter = adapter, .gradient_index = gradient_index}};
    return rows;
  }

  const Model& model_;
  AdapterPool adapters_;
  Trainer trainer_;
  size_t peak_bytes_ = 0;
  std::vector<NamedTensor> results_;
  nlohmann::json summary_ = {{"errors", nlohmann::json::object()},
                             {"metrics", nlohmann::json::object()},
                             {"steps", nlohmann::json::array()},
                             {"seconds", nlohmann::json::array()}};
};

absl::Status RunScript(const std::string& script_path, const std::string& out_path) {
  ASSIGN_OR_RETURN(const ParityScript script, ReadParityScript(script_path));
  at::set_num_threads(static_cast<int>(script.num_threads));
  ASSIGN_OR_RETURN(const ComputeDtype compute_dtype, ParseComputeDtype(script.compute_dtype));
  ASSIGN_OR_RETURN(const LoadedModel loaded,
                   LoadModel(script.folder, at::Device(script.device), nullptr, compute_dtype));
  ParityDriver driver(*loaded.model, script);
  RETURN_IF_ERROR(driver.RunAll(script));
  RETURN_IF_ERROR(WriteSafetensors(out_path, driver.results(), {}).status());
  nlohmann::json summary = driver.summary();
  summary["content_hash"] = loaded.content_hash;
  std::puts(summary.dump().c_str());
  return absl::OkStatus();
}

}  // namespace
}  // namespace lathe::worker

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: lathe_parity_driver SCRIPT.json OUT.safetensors\n", stderr);
    return 2;
  }
  c10::SetCPUAllocator(&lathe::worker::TensorBytes(), /*priority=*/1);
  const absl::Status status = lathe::worker::RunScript(argv[1], argv[2]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return 1;
}
