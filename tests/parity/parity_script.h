// The parity driver's input: a JSON file that the Python tests write.
#pragma once

#include <filesystem>
#include <string>
#include <variant>
#include <vector>

#include <absl/status/statusor.h>

#include "services/worker/lora/adapter_weights.h"
#include "services/worker/ops/commands.h"
#include "services/worker/ops/training.h"

namespace lathe::worker {

// {"op": "logits", "tokens": [...], "model": "m1" or "", "name": "logits"}
struct LogitsOp {
  std::vector<int64_t> tokens;
  std::string model_id;  // empty: the base model
  std::string name;
};

// {"op": "create", "model": "m1", "rank": 8, "seed": 1, "target_modules": [...], ...}
struct CreateOp {
  std::string model_id;
  LoraSpec lora;
};

// {"op": "set_weights", "model": "m1", "file": "w.safetensors"}: the file holds all matrices, by
// AdapterMatrix name
struct SetWeightsOp {
  std::string model_id;
  std::string file;
};

// {"op": "train", "name": "t0", "requests": [...]}: failures are reported under "errors"
struct TrainOp {
  std::string name;
  TrainBatch batch;
};

// {"op": "dump", "model": "m1", "what": "gradient" | "weights", "name": "g"}: writes one tensor per
// matrix
struct DumpOp {
  std::string model_id;
  bool gradient = false;
  std::string name;
};

// {"op": "input_gradients", "model": "m1", "tokens": [...], "file": "d.safetensors", "name": "dx"}:
// writes dL/d(input) of each layer, from dL/d(logits) under the name "dlogits" in the file
struct InputGradientsOp {
  std::string model_id;
  std::vector<int64_t> tokens;
  std::string file;
  std::string name;
};

// {"op": "step", "model": "m1", "learning_rate": ..., ...}
struct StepOp {
  std::string model_id;
  AdamParams adam;
};

using ParityOp =
    std::variant<LogitsOp, CreateOp, SetWeightsOp, TrainOp, DumpOp, InputGradientsOp, StepOp>;

struct ParityScript {
  std::string folder;          // folder of the model
  std::string device = "cpu";  // a device of torch
  // Defaults to fp32 because the reference implementations also widen bf16 weights.
  std::string compute_dtype = "fp32";
  int64_t token_budget = 4096;
  int64_t head_chunk_elements = int64_t{1} << 24;
  int64_t num_threads = 1;
  std::vector<ParityOp> ops;
};

absl::StatusOr<ParityScript> ReadParityScript(const std::filesystem::path& path);

}  // namespace lathe::worker
