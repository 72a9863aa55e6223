// Test requests for the small model, and helpers that run them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "services/worker/sampling/sampling_engine.h"
#include "services/worker/testing/test_model.h"

namespace lathe::worker {

inline std::vector<int32_t> Prompt(int64_t length, int32_t first = 1) {
  std::vector<int32_t> prompt;
  for (int64_t i = 0; i < length; ++i) {
    prompt.push_back(static_cast<int32_t>((first + 7 * i) % 90));
  }
  return prompt;
}

using Outputs = std::map<std::string, absl::StatusOr<SampleOutput>>;

// Runs all requests to their end. Returns outputs by request id.
inline Outputs RunAll(SamplingEngine& engine) {
  Outputs outputs;
  for (int pass = 0; engine.HasWork(); ++pass) {
    REQUIRE(pass < 10000);
    engine.RunPass();
    for (FinishedSample& finished : engine.TakeFinished()) {
      outputs.emplace(finished.request_id, std::move(finished.output));
    }
  }
  return outputs;
}

inline SampleOutput RunOne(SamplingEngine& engine, SampleRequest request,
                           std::shared_ptr<const AdapterWeights> adapter = nullptr,
                           int64_t inflight_seq = 0) {
  const std::string id = request.request_id;
  REQUIRE(engine.Add(std::move(request), std::move(adapter), inflight_seq).ok());
  return *RunAll(engine).at(id);
}

inline void CheckSame(const SampleOutput& a, const SampleOutput& b) {
  REQUIRE(a.sequences.size() == b.sequences.size());
  for (size_t i = 0; i < a.sequences.size(); ++i) {
    CHECK(a.sequences[i].tokens == b.sequences[i].tokens);
    CHECK(a.sequences[i].logprobs == b.sequences[i].logprobs);
  }
}

// Returns the size in bytes of a KV cache for `num_tokens` tokens.
inline int64_t BytesFor(int64_t num_tokens) {
  return num_tokens * KvCache::BytesPerToken(SmallSpec(), MatmulArithmetic::kFp32);
}

}  // namespace lathe::worker
