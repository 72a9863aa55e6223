// Rotary position embedding of some layers. Free of torch.
#pragma once

#include <cstdint>

namespace lathe::worker {

// rope_type of an HF config. Types that depend on the longest sequence of a batch are left out:
// training and sampling would differ.
enum class RopeType { kDefault, kLinear, kLlama3, kYarn };

// Parameters as an HF config names them. Each type reads its own; see RopeFrequencies.
struct RopeSpec {
  RopeType type = RopeType::kDefault;
  double theta = 0;
  double factor = 1;  // of longer contexts, for all types but kDefault
  // For kLlama3 and kYarn.
  int64_t original_max_position_embeddings = 0;
  double low_freq_factor = 1;  // kLlama3
  double high_freq_factor = 4;
  double beta_fast = 32;  // kYarn
  double beta_slow = 1;
  bool truncate = true;
  // Factor of cosines and sines. HF's default for yarn is 0.1 ln(factor) + 1.
  double attention_factor = 1;

  bool operator==(const RopeSpec&) const = default;
};

}  // namespace lathe::worker
