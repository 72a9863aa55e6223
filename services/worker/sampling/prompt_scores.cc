#include "services/worker/sampling/prompt_scores.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace lathe::worker {
namespace {

void ScoreTargets(const at::Tensor& logprobs, const SampleRequest& request, int64_t first_target,
                  std::vector<float>& out) {
  const std::vector<int64_t> targets(request.prompt.begin() + first_target,
                                     request.prompt.begin() + first_target + logprobs.size(0));
  const at::Tensor index = at::tensor(targets, at::kLong).unsqueeze(1).to(logprobs.device());
  const at::Tensor host = logprobs.gather(1, index).to(at::kCPU).contiguous();
  std::copy_n(host.const_data_ptr<float>(), targets.size(), out.begin() + first_target);
}

void ScoreTop(const at::Tensor& logprobs, int64_t first_target, TopkLogprobs& out) {
  const int64_t k = std::min(out.k, logprobs.size(1));
  auto [values, indices] = at::topk(logprobs, k, 1);
  const at::Tensor host_values = values.to(at::kCPU).contiguous();
  const at::Tensor host_ids = indices.to(at::kCPU, at::kInt).contiguous();
  for (int64_t row = 0; row < logprobs.size(0); ++row) {
    const int64_t offset = (first_target + row) * out.k;
    std::copy_n(host_ids.const_data_ptr<int32_t>() + row * k, k, out.token_ids.begin() + offset);
    std::copy_n(host_values.const_data_ptr<float>() + row * k, k, out.logprobs.begin() + offset);
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
    const at::Tensor logprobs = at::log_softmax(model.Logits(h.narrow(0, begin, n), segments), 1);
    const int64_t first_target = first_position + begin + 1;
    if (request.prompt_logprobs) {
      ScoreTargets(logprobs, request, first_target, output.prompt_logprobs);
    }
    if (request.topk_prompt_logprobs > 0) {
      ScoreTop(logprobs, first_target, *output.topk_prompt_logprobs);
    }
  }
}

}  // namespace lathe::worker
