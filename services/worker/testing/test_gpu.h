// Models on a GPU, for tests that need one.
#pragma once

#include <cstdint>
#include <memory>

#include <catch2/catch.hpp>

#include "services/worker/lora/adapter.h"
#include "services/worker/models/decoder.h"
#include "services/worker/testing/test_model.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

// Returns the GPU of the program's tests. Programs link test_gpu.cc, for a real one, or the
// emulated GPU.
at::Device TestGpu();

// Returns false with a warning if there is no GPU: the case cannot run.
bool HasGpu();

// ||a - b|| / ||b||.
inline double Distance(const at::Tensor& a, const at::Tensor& b) {
  REQUIRE(a.sizes() == b.sizes());
  const at::Tensor expected = b.to(at::kCPU, at::kDouble);
  const at::Tensor difference = a.to(at::kCPU, at::kDouble) - expected;
  return (difference.norm() / expected.norm()).item<double>();
}

// A shape whose heads our kernels take.
inline DecoderSpec SpecWithHeads(int64_t head_dim, int64_t num_heads = 4) {
  DenseShape shape = SmallShape();
  shape.head_dim = head_dim;
  shape.num_heads = num_heads;
  return DenseDecoder(shape);
}

// Returns the small model with bf16 matrices on `device`. The values are equal on all devices.
inline Decoder Bf16ModelOn(at::Device device, const DecoderSpec& spec) {
  DecoderWeights weights = SmallWeights(spec);
  for (auto* matrices : {&weights.embedding, &weights.lm_head, &weights.stacks}) {
    for (BaseWeight& matrix : *matrices) {
      matrix = BaseWeight(matrix.ToTensor().to(at::kBFloat16).to(device));
    }
  }
  for (at::Tensor& vector : weights.vectors) vector = vector.to(device);
  return Decoder(WholeModel(spec), std::move(weights));
}

// Returns an adapter with a nonzero B on `device`.
inline std::shared_ptr<Adapter> RandomAdapterOn(at::Device device, const DecoderSpec& spec,
                                                int64_t rank, uint64_t seed) {
  auto adapter =
      std::make_shared<Adapter>(WholeModel(spec), LoraSpec{.rank = rank, .seed = seed}, device);
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  adapter->MutableParameters().copy_(
      at::randn({adapter->num_parameters()}, generator, at::kFloat).mul_(0.05));
  return adapter;
}

}  // namespace lathe::worker
