// The tensors of a decoder as two tables: linears, and vectors such as norms. Reading, sharding,
// LoRA, names of checkpoints, FSDP units and the content hash derive from them. Free of torch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "libs/common/lora/lora_modules.h"

namespace lathe::worker {

inline constexpr int64_t kNoLayer = -1;
inline constexpr int64_t kNoRow = -1;

// Dimension of a linear's matrix [out_features, in_features] that ranks of axis tp divide.
enum class TpCut {
  kWhole,    // none: every rank holds the matrix
  kRows,     // outputs
  kColumns,  // inputs; outputs are sums over the ranks
};

// Features that ranks divide in the same way in all linears of a layer.
enum class CutAxis { kNone, kQueries, kKeys, kIntermediate, kVocabulary };

// One frozen linear y = x w^T + bias of the whole model.
struct LinearSpec {
  std::string name;  // of its LoRA factors in adapters, checkpoints and PEFT folders
  int64_t layer = kNoLayer;
  int64_t in_features = 0;
  int64_t out_features = 0;
  TpCut cut = TpCut::kWhole;
  CutAxis axis = CutAxis::kNone;
  LoraFamily group = LoraFamily::kAttention;
  std::string source;  // its tensors in the HF folder are source + ".weight" and ".bias"
  bool has_bias = false;

  // Returns the last component of `name`, by which requests and PEFT select it.
  std::string_view module() const {
    return std::string_view(name).substr(name.rfind('.') + 1);  // npos + 1 is 0
  }
};

// Consecutive rows that read the same input. Their matrices are stored as one, by outputs.
struct LinearStack {
  int64_t first = 0;  // row of the table
  int64_t count = 1;
  // FSDP unit. Consecutive stacks of a layer may share one. Units are numbered in the order of a
  // forward step.
  int64_t unit = 0;
};

struct LinearTable {
  std::vector<LinearSpec> rows;     // in the order of adapters
  std::vector<LinearStack> stacks;  // of the layers, in the order of a forward step
  int64_t lm_head = kNoRow;
  LinearSpec embedding;  // no row, because LoRA does not adapt it
};

// Returns each module once, in the order of the table. All rows of a module are of one family.
inline std::vector<LoraModule> AdaptableModules(const LinearTable& table) {
  std::vector<LoraModule> modules;
  for (const LinearSpec& linear : table.rows) {
    const LoraModule module{std::string(linear.module()), linear.group};
    if (std::find(modules.begin(), modules.end(), module) == modules.end()) {
      modules.push_back(module);
    }
  }
  return modules;
}

// A frozen vector that is no bias. Every rank holds it whole, in fp32.
struct VectorSpec {
  std::string source;  // its tensor in the HF folder
  int64_t size = 0;
};

struct VectorTable {
  std::vector<VectorSpec> rows;
  int64_t final_norm = kNoRow;
};

}  // namespace lathe::worker
