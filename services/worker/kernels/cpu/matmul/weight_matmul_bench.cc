// Benchmark of products with frozen matrices of Qwen3-0.6B's shapes, each read from memory and not
// from a cache.
//   lathe_matmul_bench [ROUNDS] [ROWS...]
// Prints, for two threads, the read rate of a plain loop over the same memory. For each number of
// rows it prints medians over rounds: GB/s of weights, GFLOP/s, and ms of all products of one pass.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "services/worker/kernels/cpu/matmul/weight_matmul.h"
#include "services/worker/kernels/cpu/matmul/weight_panels.h"

namespace lathe::worker {
namespace {

constexpr int64_t kNumThreads = 2;
constexpr int64_t kTaskPanels = 8;

struct Shape {
  const char* name;
  int64_t n, k;
  int64_t in_memory;  // number of matrices that together exceed a cache
  int64_t in_model;
};
constexpr Shape kShapes[] = {{"qkv", 4096, 1024, 8, 28},
                             {"o", 1024, 2048, 16, 28},
                             {"gate_up", 6144, 1024, 6, 28},
                             {"down", 1024, 3072, 12, 28},
                             {"head", 151936, 1024, 1, 1}};

template <typename F>
double SecondsOf(const F& run) {
  const auto begin = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Calls run(i) for i in [0, num_tasks), on any free thread.
template <typename F>
void OnThreads(int64_t num_tasks, const F& run) {
  std::atomic<int64_t> next = 0;
  const auto work = [&] {
    for (int64_t i = next++; i < num_tasks; i = next++) run(i);
  };
  std::vector<std::jthread> threads;
  for (int64_t t = 1; t < kNumThreads; ++t) threads.emplace_back(work);
  work();
}

template <typename F>
double MedianSeconds(int rounds, const F& run) {
  std::vector<double> seconds;
  for (int i = 0; i < rounds; ++i) seconds.push_back(SecondsOf(run));
  std::nth_element(seconds.begin(), seconds.begin() + rounds / 2, seconds.end());
  return seconds[rounds / 2];
}

// Several matrices of one shape.
class Matrices {
 public:
  Matrices(const Shape& shape, bool is_bf16)
      : shape_(shape), panels_{.data = nullptr, .is_bf16 = is_bf16, .n = shape.n, .k = shape.k} {
    memory_ = AllocateHugePages(NumBytes());
    std::memset(memory_.get(), 0x3c, static_cast<size_t>(NumBytes()));  // 0.0115 in bf16
  }

  const Shape& shape() const { return shape_; }
  int64_t NumBytes() const { return panels_.NumBytes() * shape_.in_memory; }
  const char* data() const { return static_cast<const char*>(memory_.get()); }

  void Multiply(MatmulArithmetic arithmetic, const void* x, float* y, int64_t num_rows) const {
    const int64_t tasks_each = (panels_.NumPanels() + kTaskPanels - 1) / kTaskPanels;
    OnThreads(tasks_each * shape_.in_memory, [&](int64_t i) {
      WeightMatmulTask task = {.weight = panels_,
                               .x = x,
                               .x_stride = shape_.k,
                               .y = y,
                               .y_stride = shape_.n,
                               .num_rows = num_rows,
                               .accumulate = false};
      task.weight.data = data() + i / tasks_each * panels_.NumBytes();
      const int64_t first = i % tasks_each * kTaskPanels;
      MatmulTransposed(task, arithmetic, first, std::min(panels_.NumPanels(), first + kTaskPanels));
    });
  }

 private:
  Shape shape_;
  WeightPanels panels_;
  std::shared_ptr<void> memory_;
};

double ReadRate(int rounds, const Matrices& matrices) {
  constexpr int64_t kTaskBytes = int64_t{1} << 20;
  std::atomic<uint64_t> sum = 0;  // keeps the compiler from removing the reads
  const double seconds = MedianSeconds(rounds, [&] {
    OnThreads(matrices.NumBytes() / kTaskBytes, [&](int64_t i) {
      const char* data = matrices.data() + i * kTaskBytes;
      uint64_t part = 0;
      for (int64_t at = 0; at < kTaskBytes; at += 64) {
        uint64_t word;
        std::memcpy(&word, data + at, sizeof(word));
        part += word;
      }
      sum += part;
    });
  });
  return static_cast<double>(matrices.NumBytes()) / seconds * 1e-9;
}

void Bench(const char* name, bool is_bf16, MatmulArithmetic arithmetic, int rounds,
           const std::vector<int64_t>& row_counts) {
  std::vector<Matrices> all;
  for (const Shape& shape : kShapes) all.emplace_back(shape, is_bf16);
  std::printf("%s: a plain loop reads %.1f GB/s\n", name, ReadRate(rounds, all.back()));
  for (const int64_t num_rows : row_counts) {
    const std::vector<float> x(static_cast<size_t>(num_rows * 3072), 1.0f);
    std::vector<float> y(static_cast<size_t>(num_rows * 151936));
    std::printf("%4ld rows:", static_cast<long>(num_rows));
    double pass_seconds = 0, pass_bytes = 0, pass_flops = 0;
    for (const Matrices& matrices : all) {
      const Shape& shape = matrices.shape();
      const double seconds =
          MedianSeconds(rounds,
                        [&] { matrices.Multiply(arithmetic, x.data(), y.data(), num_rows); }) /
          static_cast<double>(shape.in_memory);
      const double bytes =
          static_cast<double>(matrices.NumBytes()) / static_cast<double>(shape.in_memory);
      const double flops = 2.0 * static_cast<double>(num_rows * shape.n * shape.k);
      std::printf(" %s %.1f GB/s %.0f GFLOP/s,", shape.name, bytes / seconds * 1e-9,
                  flops / seconds * 1e-9);
      const auto times = static_cast<double>(shape.in_model);
      pass_seconds += times * seconds;
      pass_bytes += times * bytes;
      pass_flops += times * flops;
    }
    std::printf(" pass %.1f GB/s %.0f GFLOP/s %.1f ms\n", pass_bytes / pass_seconds * 1e-9,
                pass_flops / pass_seconds * 1e-9, pass_seconds * 1e3);
  }
}

}  // namespace
}  // namespace lathe::worker

int main(int argc, char** argv) {
  using lathe::worker::MatmulArithmetic;
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 9;
  std::vector<int64_t> row_counts;
  for (int i = 2; i < argc; ++i) row_counts.push_back(std::atoll(argv[i]));
  if (row_counts.empty()) row_counts = {1, 2, 4, 8, 16, 32};
  if (lathe::worker::CpuHasBf16()) {
    lathe::worker::Bench("bf16", true, MatmulArithmetic::kBf16, rounds, row_counts);
  }
  lathe::worker::Bench("bf16 widened", true, MatmulArithmetic::kFp32, rounds, row_counts);
  lathe::worker::Bench("fp32", false, MatmulArithmetic::kFp32, rounds, row_counts);
  return 0;
}
