#include "services/worker/sampling/prompt_scores.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "services/worker/layers/logprobs.h"

namespace lathe::worker {
namespace {

void ScoreTargets(const at::Tensor& logits, const SoftmaxStats& stats, const SampleRequest& request,
                  int64_t first_target, std::vector<float>& out) {
  RowTargets targets;
  for (int64_t row = 0; row < logits.size(0); ++row) {
    targets.tokens.push_back(request.prompt[first_target + row]);
    targets.offsets.push_back(row + 1);
  }
  const std::vector<float> logprobs = TargetLogprobs(logits, stats, targets);
  std::copy(logprobs.begin(), logprobs.end(), out.begin() + first_target);
}

void ScoreTop(const at::Tensor& logits, const SoftmaxStats& stats, int64_t first_target,
              TopkLogprobs& out) {
  const int64_t k = std::min(out.k, logits.size(1));
  const at::Tensor ids = std::get<1>(at::topk(logits, k, 1)).to(at::kCPU).contiguous();
  const auto* const tokens = ids.const_data_ptr<int64_t>();
  RowTargets targets;
  targets.tokens.assign(tokens, tokens + ids.numel());
  for (int64_t row = 0; row < logits.size(0); ++row) targets.offsets.push_back((row + 1) * k);
  const std::vector<float> logprobs = TargetLogprobs(logits, stats, targets);
  for (int64_t row = 0; row < logits.size(0); ++row) {
    const int64_t offset = (first_target + row) * out.k;
    std::copy_n(tokens + row * k, k, out.token_ids.begin() + offset);
    std::copy_n(logprobs.begin() + row * k, k, out.logprobs.begin() + offset);
  }
}

}  // namespace

void PreparePromptScores(const SampleRequest& request, SampleOutput& output) {
  const auto length = static_cast<int64_t>(request.prompt.size());
  if (request.prompt_logprobs) {
    output.prompt_logprobs.assign(length, std::numeric_limits<float>::quiet_NaN());
  }
  if (request.topk_prompt_logprobs > 0) {
    const int64_t k = request.topk_prompt_logprobs;
    output.topk_prompt_logprobs =
        TopkLogprobs{.k = k,
                     .length = length,
                     .token_ids = std::vector<int32_t>(length * k, kNoTopToken),
                     .logprobs = std::vector<float>(length * k, kNoTopLogprob)};
  }
}

void ScorePrompt(const Model& model, const at::Tensor& h, const AdapterWeights* adapter,
                 const SampleRequest& request, int64_t first_position, int64_t chunk_elements,
                 SampleOutput& output) {
  const int64_t chunk_rows = std::max<int64_t>(1, chunk_elements / model.spec().vocab_size);
  for (int64_t begin = 0; begin < h.size(0); begin += chunk_rows) {
    const int64_t n = std::min(chunk_rows, h.size(0) - begin);
    const std::vector<Segment> segments = {{.begin = 0, .end = n, .adapter = adapter}};
    const at::Tensor logits = model.Logits(h.narrow(0, begin, n), segments);
    const SoftmaxStats stats = SoftmaxStatsOf(logits);
    const int64_t first_target = first_position + begin + 1;
    if (request.prompt_logprobs) {
      ScoreTargets(logits, stats, request, first_target, output.prompt_logprobs);
    }
    if (request.topk_prompt_logprobs > 0) {
      ScoreTop(logits, stats, first_target, *output.topk_prompt_logprobs);
    }
  }
}

}  // namespace lathe::worker
