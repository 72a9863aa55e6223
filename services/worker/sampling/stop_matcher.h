// Decides after each generated token whether the sequence ends.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "services/worker/ops/sampling.h"
#include "services/worker/tokenizer/tokenizer.h"

namespace lathe::worker {

// One per sequence. End-of-sequence and stop tokens end it immediately. A stop string ends it when
// the bytes that the tokens add to the prompt contain it, across token borders too. (A first token
// ▁foo contributes its space.)
class StopMatcher {
 public:
  // `params` and `tokenizer` must outlive this object. `tokenizer` may be null without stop
  // strings.
  StopMatcher(const SamplingParams& params, const std::vector<int64_t>& eos_token_ids,
              const Tokenizer* tokenizer);

  // Returns true if the sequence ends with `token`, which is part of it.
  bool Append(int32_t token);

 private:
  bool IsStopToken(int32_t token) const;

  const SamplingParams* params_;
  const std::vector<int64_t>* eos_token_ids_;
  const Tokenizer* tokenizer_;
  size_t longest_string_ = 0;
  std::string tail_;  // last bytes that may begin a stop string
};

}  // namespace lathe::worker
