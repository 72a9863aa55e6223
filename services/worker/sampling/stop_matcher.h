// Decides after each generated token whether the sequence has come to a stop.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "services/worker/ops.h"
#include "services/worker/tokenizer/tokenizer.h"

namespace lathe::worker {

// One per sequence. End-of-sequence and stop tokens end it by themselves; stop strings when the
// bytes that the tokens so far add to the prompt contain one, wherever token borders lie (a token
// ▁foo at the beginning begins with its space).
class StopMatcher {
 public:
  // `params` and `tokenizer` must outlive it; `tokenizer` may be null without stop strings.
  StopMatcher(const SamplingParams& params, const std::vector<int64_t>& eos_token_ids,
              const Tokenizer* tokenizer);

  // True when the sequence ends with `token`, which belongs to it.
  bool Append(int32_t token);

 private:
  bool IsStopToken(int32_t token) const;

  const SamplingParams* params_;
  const std::vector<int64_t>* eos_token_ids_;
  const Tokenizer* tokenizer_;
  size_t longest_string_ = 0;
  std::string tail_;  // the last bytes that may begin a stop string
};

}  // namespace lathe::worker
