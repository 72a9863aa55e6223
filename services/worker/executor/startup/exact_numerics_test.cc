// Tests the promise of exact numerics: a client gets the same bits whatever shares its passes,
// however batches are cut, and in whatever order they arrive.
#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "services/worker/lora/adapter_layout.h"
#include "services/worker/sampling/sampling_engine.h"
#include "services/worker/testing/test_trainer.h"
#include "services/worker/torch/aten.h"
#include "services/worker/training/adamw.h"

namespace lathe::worker {
namespace {

class ExactRandom {
 public:
  explicit ExactRandom(uint32_t seed) : engine_(seed) {}
  // 0 … limit - 1
  size_t Below(size_t limit) { return engine_() % limit; }
  bool OneIn(size_t n) { return Below(n) == 0; }
  float Uniform() { return static_cast<float>(Below(1 << 20)) / (1 << 20); }

  TrainDatum Datum(const LossProgram& loss) {
    TrainDatum datum = TestDatum(1 + Below(OneIn(4) ? 70 : 12), static_cast<int32_t>(Below(96)));
    if (loss.inputs == LossInputs::kWeights && OneIn(3)) {
      datum.num_targets = 2;
      datum.targets.resize(2 * datum.tokens.size());
      datum.weights.resize(2 * datum.tokens.size());
    }
    for (int64_t& target : datum.targets) target = static_cast<int64_t>(Below(96));
    for (float& weight : datum.weights) weight = OneIn(4) ? 0.0f : Uniform();
    for (float& logprob : datum.logprobs) logprob = -4 - Uniform();
    for (float& advantage : datum.advantages) advantage = OneIn(4) ? 0.0f : Uniform() - 0.5f;
    return datum;
  }

  TrainRequest Request(const std::string& model_id, int64_t seq_id) {
    const LossProgram& loss = *AllLosses()[Below(AllLosses().size())];
    std::vector<TrainDatum> data;
    for (size_t i = 0; i < 1 + Below(5); ++i) data.push_back(Datum(loss));
    TrainRequest request = TestRequest(model_id + ":" + std::to_string(seq_id), model_id, seq_id,
                                       std::move(data), loss.name);
    // A wide range, so that in every loss that clips, some tokens are not clipped.
    request.loss.clip_low = 0.8;
    request.loss.clip_high = 1.2;
    request.forward_only = OneIn(4);
    return request;
  }

  template <typename T>
  void Shuffle(std::vector<T>& values) {
    std::shuffle(values.begin(), values.end(), engine_);
  }

 private:
  std::mt19937 engine_;
};

class ThreadCount {
 public:
  explicit ThreadCount(int count) : before_(at::get_num_threads()) { at::set_num_threads(count); }
  ~ThreadCount() { at::set_num_threads(before_); }

 private:
  const int before_;
};

// Results of tenant m1 by window of requests. An optimizer step ends each window.
struct ExactSeen {
  std::vector<std::map<std::string, TrainOutput>> outputs;  // by window
  std::vector<at::Tensor> gradients;
  std::vector<at::Tensor> parameters;
};

using Windows = std::vector<std::vector<TrainRequest>>;

void EndWindow(TestTrainer& bench, ExactSeen& seen) {
  std::map<std::string, TrainOutput> outputs;
  for (FinishedRequest& finished : bench.trainer.TakeFinished()) {
    INFO(finished.request_id);
    REQUIRE(finished.output.ok());
    if (finished.request_id.starts_with("m1:")) {
      outputs.emplace(finished.request_id, *std::move(finished.output));
    }
  }
  seen.outputs.push_back(std::move(outputs));
  seen.gradients.push_back(bench.adapter("m1").gradient.clone());
  REQUIRE(ApplyAdamW(bench.adapter("m1"), {.learning_rate = 0.01, .grad_clip_norm = 0.5}).ok());
  seen.parameters.push_back(bench.adapter("m1").parameters().clone());
}

ExactSeen RunAlone(const Windows& windows, const Model& model) {
  const ThreadCount one_thread(1);
  TestTrainer bench({.numerics = Numerics::kExact}, model);
  ExactSeen seen;
  for (const std::vector<TrainRequest>& window : windows) {
    for (const TrainRequest& request : window) {
      bench.trainer.Begin({{request}});
      while (bench.trainer.RunUnit()) {
      }
    }
    EndWindow(bench, seen);
  }
  return seen;
}

TrainerOptions RandomOptions(ExactRandom& random) {
  const int64_t chunk = 96 * static_cast<int64_t>(1 + random.Below(40));
  const PassMemory memory(SmallSpec(), chunk, {.cpu_threads = at::get_num_threads()});
  const PassShape shape{.num_tokens = 80,
                        .num_entries = 160,
                        .gradient_bytes = int64_t{1} << 20,
                        .max_lora_rank = 12,
                        .wants_gradient = true};
  const int64_t least = memory.Bytes(shape, SmallSpec().num_layers());
  return {.token_budget = static_cast<int64_t>(1 + random.Below(150)),
          .head_chunk_elements = chunk,
          .arena_bytes = random.OneIn(2) ? least : int64_t{2} << 30,
          .numerics = Numerics::kExact};
}

ExactSeen RunAmongOthers(const Windows& windows, const Model& model, ExactRandom& random) {
  const ThreadCount threads(1 + static_cast<int>(random.Below(3)));
  TestTrainer bench(RandomOptions(random), model);
  std::vector<std::string> others = {"m2"};
  for (size_t i = 0; i < random.Below(4); ++i) {
    others.push_back("other" + std::to_string(i));
    bench.adapters.Put(others.back(),
                       TestAdapter(1 + static_cast<int64_t>(random.Below(12)), 10 + i));
  }
  int64_t other_seq = 0;
  ExactSeen seen;
  for (const std::vector<TrainRequest>& window : windows) {
    size_t next = 0;
    while (next < window.size()) {
      TrainBatch batch;
      for (size_t n = 1 + random.Below(3); n > 0 && next < window.size(); --n) {
        batch.requests.push_back(window[next++]);
      }
      for (size_t n = random.Below(4); n > 0; --n) {
        batch.requests.push_back(random.Request(others[random.Below(others.size())], ++other_seq));
      }
      random.Shuffle(batch.requests);
      bench.trainer.Begin(std::move(batch));
      for (size_t units = random.Below(30); units > 0; --units) bench.trainer.RunUnit();
    }
    while (bench.trainer.RunUnit()) {
    }
    EndWindow(bench, seen);
  }
  return seen;
}

// Returns the first matrix whose bits differ; empty: none.
std::string FirstDifference(const at::Tensor& a, const at::Tensor& b, const LoraSpec& lora) {
  for (const AdapterMatrix& matrix : AdapterLayout(WholeModel(SmallSpec()), lora)) {
    const auto part = [&](const at::Tensor& flat) {
      return flat.narrow(0, matrix.offset, matrix.num_elements());
    };
    if (!at::equal(part(a), part(b))) return matrix.name();
  }
  return "";
}

void CheckSeenAlike(const ExactSeen& actual, const ExactSeen& expected) {
  const LoraSpec lora = TestAdapter(3, 1)->lora();
  for (size_t window = 0; window < expected.outputs.size(); ++window) {
    CAPTURE(window);
    REQUIRE(actual.outputs[window].size() == expected.outputs[window].size());
    for (const auto& [id, output] : expected.outputs[window]) {
      CAPTURE(id);
      const TrainOutput& other = actual.outputs[window].at(id);
      REQUIRE(other.logprobs == output.logprobs);
      for (size_t i = 0; i < output.metrics.size(); ++i) {
        CAPTURE(output.metrics[i].name);
        REQUIRE(other.metrics[i].value == output.metrics[i].value);
      }
    }
    REQUIRE(FirstDifference(actual.gradients[window], expected.gradients[window], lora) == "");
    REQUIRE(FirstDifference(actual.parameters[window], expected.parameters[window], lora) == "");
  }
}

// Returns the small model, or the same with bf16 matrices that are widened, or multiplied in bf16
// if the CPU can. Each uses other kernels.
const Model& ModelOf(int kind) {
  static const Decoder* widened = new Decoder(SmallBf16Model());
  static const Decoder* bf16 =
      new Decoder(SmallBf16Model(CpuHasBf16() ? MatmulArithmetic::kBf16 : MatmulArithmetic::kFp32));
  return kind == 0 ? TestModel() : kind == 1 ? *widened : *bf16;
}

// Draws a prompt with one of a few beginnings, so that requests share blocks of the prefix cache.
SampleRequest RandomSample(ExactRandom& random, const std::string& id) {
  SampleRequest request{.request_id = id, .tenant_id = random.OneIn(4) ? "other" : "mine"};
  const auto beginning = static_cast<int32_t>(random.Below(2));
  for (size_t i = 0, n = random.Below(60); i < n; ++i) {
    request.prompt.push_back(beginning + static_cast<int32_t>(i % 7));
  }
  for (size_t i = 0, n = 1 + random.Below(12); i < n; ++i) {
    request.prompt.push_back(static_cast<int32_t>(random.Below(96)));
  }
  request.num_samples = 1 + static_cast<int64_t>(random.Below(3));
  request.prompt_logprobs = random.OneIn(3);
  request.params = {.max_tokens = 1 + static_cast<int64_t>(random.Below(40)),
                    .seed = random.Below(1000),
                    .ignore_eos = true};
  return request;
}

// The cache has room for between one request of the longest kind and more than all need.
SamplingOptions RandomSamplingOptions(ExactRandom& random, const Model& model) {
  const auto num_tokens = static_cast<int64_t>(random.OneIn(2) ? 128 + random.Below(300) : 4096);
  return {.kv_cache_bytes =
              num_tokens * KvCache::BytesPerToken(model.spec(), model.attention_arithmetic()),
          .max_running_samples = static_cast<int64_t>(2 + random.Below(9)),
          .max_prefill_tokens = static_cast<int64_t>(1 + random.Below(100)),
          .max_prefill_tokens_beside_decode = static_cast<int64_t>(1 + random.Below(40)),
          .prefix_cache = !random.OneIn(4),
          .head_chunk_elements = static_cast<int64_t>(96 * (1 + random.Below(9)))};
}

std::map<std::string, SampleOutput> Finish(SamplingEngine& engine) {
  std::map<std::string, SampleOutput> outputs;
  while (engine.HasWork()) {
    engine.RunPass();
    for (FinishedSample& finished : engine.TakeFinished()) {
      REQUIRE(finished.output.ok());
      outputs.emplace(finished.request_id, *std::move(finished.output));
    }
  }
  return outputs;
}

}  // namespace

TEST_CASE("exact: training gives a tenant the same bits alone and among others", "[exact]") {
  const Model& model = ModelOf(GENERATE(0, 1, 2));
  const uint32_t seed = GENERATE(range(1u, 21u));
  CAPTURE(seed);
  ExactRandom random(seed);
  Windows windows(2);
  int64_t seq_id = 0;
  for (auto& window : windows) {
    for (size_t i = 0; i < 1 + random.Below(5); ++i) {
      window.push_back(random.Request("m1", ++seq_id));
    }
  }
  CheckSeenAlike(RunAmongOthers(windows, model, random), RunAlone(windows, model));
}

TEST_CASE("exact: samples are the same bits alone and among others, from whatever cache",
          "[exact]") {
  const Model& model = ModelOf(GENERATE(0, 1, 2));
  constexpr uint32_t kLastSeed = 15;
  const uint32_t seed = GENERATE(range(1u, kLastSeed + 1));
  CAPTURE(seed);
  static int64_t num_tokens = 0;  // summed over all seeds and models so far
  static int64_t num_different = 0;
  ExactRandom random(seed);
  const std::shared_ptr<const AdapterWeights> adapters[] = {nullptr, RandomAdapter(5, 3),
                                                            RandomAdapter(2, 4)};
  const char* const versions[] = {"", "v1", "v2"};
  const auto add = [&](SamplingEngine& engine, SampleRequest request, size_t version) {
    request.version_id = versions[version];
    REQUIRE(engine.Add(std::move(request), adapters[version]).ok());
  };
  std::vector<std::pair<SampleRequest, size_t>> requests;
  for (int i = 0; i < 12; ++i) {
    requests.emplace_back(RandomSample(random, "r" + std::to_string(i)), random.Below(3));
  }

  SamplingEngine crowded(model, RandomSamplingOptions(random, model), /*tokenizer=*/nullptr);
  std::map<std::string, SampleOutput> outputs;
  const auto run_pass = [&] {
    crowded.RunPass();
    for (FinishedSample& finished : crowded.TakeFinished()) {
      REQUIRE(finished.output.ok());
      outputs.emplace(finished.request_id, *std::move(finished.output));
    }
  };
  for (const auto& [request, version] : requests) {
    add(crowded, request, version);
    for (size_t passes = random.Below(6); passes > 0; --passes) run_pass();
    if (random.OneIn(6)) crowded.Cancel("r" + std::to_string(random.Below(12)));
    if (random.OneIn(8)) crowded.DropVersion(versions[1 + random.Below(2)]);
  }
  for (int passes = 0; crowded.HasWork(); ++passes) {
    REQUIRE(passes < 20000);
    run_pass();
  }
  CHECK(crowded.kv_usage().num_used == 0);

  for (const auto& [request, version] : requests) {
    if (!outputs.contains(request.request_id)) continue;  // cancelled
    CAPTURE(request.request_id);
    const SampleOutput& actual = outputs.at(request.request_id);
    SamplingEngine alone(model, {.prefix_cache = false}, /*tokenizer=*/nullptr);
    add(alone, request, version);
    const SampleOutput expected = Finish(alone).at(request.request_id);
    // The first entry is a NaN.
    REQUIRE(actual.prompt_logprobs.size() == expected.prompt_logprobs.size());
    for (size_t i = 1; i < expected.prompt_logprobs.size(); ++i) {
      REQUIRE(actual.prompt_logprobs[i] == expected.prompt_logprobs[i]);
    }
    REQUIRE(actual.sequences.size() == expected.sequences.size());
    for (size_t i = 0; i < expected.sequences.size(); ++i) {
      const std::vector<int32_t>& tokens = expected.sequences[i].tokens;
      REQUIRE(actual.sequences[i].tokens.size() == tokens.size());
      num_tokens += static_cast<int64_t>(tokens.size());
      for (size_t t = 0; t < tokens.size(); ++t) {
        num_different += actual.sequences[i].tokens[t] != tokens[t] ? 1 : 0;
      }
      CHECK(actual.sequences[i].logprobs == expected.sequences[i].logprobs);
    }
  }
  CHECK(num_different == 0);
  // On a CPU, sampling has the same arithmetic for `fast` and `exact`.
  if (seed == kLastSeed) WARN(num_different << " of " << num_tokens << " tokens differ");
}

TEST_CASE("exact: sampled logprobs are the trainer's, bit for bit", "[exact]") {
  const Model& model = ModelOf(GENERATE(0, 1, 2));
  const uint32_t seed = GENERATE(range(1u, 6u));
  CAPTURE(seed);
  ExactRandom random(seed);
  TestTrainer bench({.numerics = Numerics::kExact}, model);
  SampleRequest request = RandomSample(random, "mine");
  request.prompt_logprobs = true;
  SamplingEngine engine(model, {}, /*tokenizer=*/nullptr);
  REQUIRE(engine.Add(request, bench.adapter("m1").Publish()).ok());
  const SampleOutput sampled = Finish(engine).at("mine");

  for (const SampledSequence& sequence : sampled.sequences) {
    std::vector<int32_t> all = request.prompt;
    all.insert(all.end(), sequence.tokens.begin(), sequence.tokens.end());
    TrainDatum datum{.tokens = {all.begin(), all.end() - 1},
                     .targets = {all.begin() + 1, all.end()},
                     .weights = std::vector<float>(all.size() - 1, 1.0f)};
    TrainRequest forward = TestRequest("f", "m1", 1, {std::move(datum)});
    forward.forward_only = true;
    const std::vector<float> logprobs = bench.Run({forward}).at("f")->logprobs[0];
    const size_t prompt_size = request.prompt.size();
    for (size_t i = 1; i < prompt_size; ++i) {
      REQUIRE(sampled.prompt_logprobs[i] == logprobs[i - 1]);
    }
    REQUIRE(std::vector<float>(logprobs.begin() + static_cast<int64_t>(prompt_size) - 1,
                               logprobs.end()) == sequence.logprobs);
  }
}

}  // namespace lathe::worker
