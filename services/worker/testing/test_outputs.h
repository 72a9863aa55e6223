// Test requests of every kind, and comparison of their outputs.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "services/worker/lora/adapter_weights.h"
#include "services/worker/ops/sampling.h"

namespace lathe::worker {

struct Asked {
  SampleRequest request;
  std::shared_ptr<const AdapterWeights> adapter;
};

inline PromptTargets Targets(int64_t num_rows) {
  PromptTargets targets{.num_columns = 3, .offsets = {0}};
  for (int64_t cell = 0; cell < num_rows * 3; ++cell) {
    targets.tokens.push_back(cell % 4 == 1 ? -1 : cell * 7 % 94);
    if (cell % 3 == 2) targets.offsets.push_back(cell + 1);
  }
  return targets;
}

// Returns a request of the kind that `index` selects.
inline Asked AskFor(uint32_t index) {
  SampleRequest request{.request_id = std::to_string(index), .num_samples = 1 + index % 3};
  for (uint32_t i = 0; i < 3 + 7 * index % 40; ++i) {
    request.prompt.push_back(static_cast<int32_t>((i * i + 3 * index) % 90));
  }
  request.params = {.max_tokens = 5 + index,
                    .temperature = index % 4 == 1 ? 0.0 : 0.6 + 0.1 * (index % 5),
                    .top_k = index % 5 == 2 ? 12 : -1,
                    .top_p = index % 5 == 3 ? 0.8 : 1.0,
                    .min_p = index % 5 == 4 ? 0.02 : 0.0,
                    .seed = index,
                    .ignore_eos = index % 2 == 0};
  request.prompt_logprobs = index % 2 == 0;
  request.topk_prompt_logprobs = index % 3;
  request.topk_sample_logprobs = index % 4;
  request.prompt_alt_tokens_k = index % 5 == 1 ? 3 : 0;
  if (index % 3 == 1) {
    request.targets = std::make_shared<const PromptTargets>(
        Targets(static_cast<int64_t>(request.prompt.size()) - 1));
  }
  return {.request = std::move(request)};
}

// Compares bit by bit, so NaN equals itself.
inline bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

inline bool IsClose(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) != std::isnan(b[i])) return false;
    if (a[i] != b[i] && std::abs(a[i] - b[i]) > 1e-5) return false;
  }
  return true;
}

// Compares all numbers with `are_alike` and all ids for equality.
template <typename AreAlike>
void Compare(const SampleOutput& a, const SampleOutput& b, const AreAlike& are_alike) {
  const auto compare_top = [&](const std::optional<TopkLogprobs>& x,
                               const std::optional<TopkLogprobs>& y) {
    REQUIRE(x.has_value() == y.has_value());
    if (!x) return;
    CHECK(x->token_ids == y->token_ids);
    CHECK(are_alike(x->logprobs, y->logprobs));
  };
  REQUIRE(a.sequences.size() == b.sequences.size());
  for (size_t i = 0; i < a.sequences.size(); ++i) {
    CHECK(a.sequences[i].tokens == b.sequences[i].tokens);
    CHECK(are_alike(a.sequences[i].logprobs, b.sequences[i].logprobs));
    compare_top(a.sequences[i].topk_logprobs, b.sequences[i].topk_logprobs);
  }
  CHECK(are_alike(a.prompt_logprobs, b.prompt_logprobs));
  compare_top(a.topk_prompt_logprobs, b.topk_prompt_logprobs);
  if (a.target_prompt_logprobs) {
    CHECK(are_alike(a.target_prompt_logprobs->logprobs, b.target_prompt_logprobs->logprobs));
  }
  if (a.prompt_alt_tokens) {
    CHECK(a.prompt_alt_tokens->tokens == b.prompt_alt_tokens->tokens);
    CHECK(are_alike(a.prompt_alt_tokens->logprobs, b.prompt_alt_tokens->logprobs));
  }
}

}  // namespace lathe::worker
