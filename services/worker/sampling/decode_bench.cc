// Decode passes of the tiny model without the service around them.
//   lathe_decode_bench [ROUNDS] [TOKENS] [THREADS]
// Prints the medians over alternating rounds of the time per decode pass with one sample and with
// 64, and the ratio of tokens per second: by the CPU time of all threads (steadier on a machine
// that does other work) and by the clock.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include "services/worker/sampling/sampling_engine.h"
#include "services/worker/sampling/test_model.h"

namespace lathe::worker {
namespace {

constexpr int kNumTogether = 64;

ModelSpec TinySpec() {
  return {.family = "qwen3",
          .num_layers = 2,
          .hidden_size = 64,
          .intermediate_size = 192,
          .num_heads = 4,
          .num_kv_heads = 2,
          .head_dim = 16,
          .vocab_size = 768,
          .max_position_embeddings = 2048};
}

struct Cost {
  double cpu_ms = 0;   // per decode pass, all threads
  double wall_ms = 0;  // the same by the clock
};

double CpuMs() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

Cost Measure(const Model& model, int num_samples, int64_t num_tokens) {
  SamplingEngine engine(model, {.kv_cache_bytes = int64_t{1} << 28}, /*tokenizer=*/nullptr);
  for (int i = 0; i < num_samples; ++i) {
    SampleRequest request;
    request.request_id = std::to_string(i);
    request.prompt = {30, 31, 32, 33};
    request.params.max_tokens = num_tokens;
    request.params.seed = static_cast<uint64_t>(i);
    request.params.ignore_eos = true;
    if (!engine.Add(std::move(request), nullptr).ok()) std::abort();
  }
  engine.RunPass();  // the prompts
  const double cpu_begin = CpuMs();
  const auto begin = std::chrono::steady_clock::now();
  while (engine.HasWork()) {
    engine.RunPass();
    engine.TakeFinished();
  }
  const std::chrono::duration<double, std::milli> wall = std::chrono::steady_clock::now() - begin;
  const auto passes = static_cast<double>(engine.counters().decode_passes);
  return {.cpu_ms = (CpuMs() - cpu_begin) / passes, .wall_ms = wall.count() / passes};
}

double Median(std::vector<Cost> costs, double Cost::*member) {
  std::sort(costs.begin(), costs.end(),
            [&](const Cost& a, const Cost& b) { return a.*member < b.*member; });
  return costs[costs.size() / 2].*member;
}

void Run(int rounds, int64_t num_tokens) {
  const c10::InferenceMode no_autograd;
  const Qwen3Model model = SmallModel(TinySpec());
  std::vector<Cost> one;
  std::vector<Cost> many;
  for (int round = 0; round < rounds; ++round) {
    one.push_back(Measure(model, 1, num_tokens));
    many.push_back(Measure(model, kNumTogether, num_tokens));
  }
  for (const auto& [name, member] : {std::pair{"cpu", &Cost::cpu_ms}, {"wall", &Cost::wall_ms}}) {
    const double a = Median(one, member);
    const double b = Median(many, member);
    std::printf("%-4s ms per decode pass: 1 sample %.4f, %d samples %.4f; rate ratio %.1f\n", name,
                a, kNumTogether, b, kNumTogether * a / b);
  }
}

}  // namespace
}  // namespace lathe::worker

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 5;
  const int64_t num_tokens = argc > 2 ? std::atoll(argv[2]) : 512;
  at::set_num_threads(argc > 3 ? std::atoi(argv[3]) : 1);
  lathe::worker::Run(rounds, num_tokens);
  return 0;
}
