#include "services/worker/sampling/stop_matcher.h"

#include <algorithm>

namespace lathe::worker {

StopMatcher::StopMatcher(const SamplingParams& params, const std::vector<int64_t>& eos_token_ids,
                         const Tokenizer* tokenizer)
    : params_(&params), eos_token_ids_(&eos_token_ids), tokenizer_(tokenizer) {
  for (const std::string& text : params.stop_strings) {
    longest_string_ = std::max(longest_string_, text.size());
  }
}

bool StopMatcher::IsStopToken(int32_t token) const {
  const auto& eos = *eos_token_ids_;
  const auto& stops = params_->stop_tokens;
  return (!params_->ignore_eos && std::find(eos.begin(), eos.end(), token) != eos.end()) ||
         std::find(stops.begin(), stops.end(), token) != stops.end();
}

bool StopMatcher::Append(int32_t token) {
  if (IsStopToken(token)) return true;
  if (longest_string_ == 0 || tokenizer_ == nullptr) return false;
  tail_ += tokenizer_->TokenBytes(token);
  for (const std::string& text : params_->stop_strings) {
    if (!text.empty() && tail_.find(text) != std::string::npos) return true;
  }
  if (tail_.size() >= longest_string_) tail_.erase(0, tail_.size() - (longest_string_ - 1));
  return false;
}

}  // namespace lathe::worker
