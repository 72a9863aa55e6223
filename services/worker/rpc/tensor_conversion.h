// Conversion between lathe.v1 tensors or packed bytes and vectors, and of the tensors of prompt
// scoring to ops/. Little-endian hosts only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "absl/status/statusor.h"
#include "protos/lathe/v1/types.pb.h"
#include "services/worker/ops/sampling.h"

namespace lathe::worker {

// A dense row-major tensor. With one dimension, `cols` is 1.
template <typename T>
struct Matrix {
  int64_t rows = 0;
  int64_t cols = 1;
  bool is_2d = false;
  std::vector<T> values;  // [rows·cols]
};

// Read a dense or CSR tensor. Cells that a CSR encoding does not list are 0. Integers are read from
// integer dtypes only, floats from any dtype. InvalidArgument: another dtype, bytes that do not
// match dtype and shape, indices out of range, or more than two dimensions.
absl::StatusOr<Matrix<int64_t>> ReadIntegers(const lathe::v1::Tensor& tensor);
absl::StatusOr<Matrix<float>> ReadFloats(const lathe::v1::Tensor& tensor);

// Returns the elements of `bytes`. InvalidArgument: the length is not a multiple of sizeof(T).
template <typename T>
absl::StatusOr<std::vector<T>> ReadPacked(std::string_view bytes) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (bytes.size() % sizeof(T) != 0) {
    return absl::InvalidArgumentError("packed array is " + std::to_string(bytes.size()) +
                                      " bytes, not a multiple of " + std::to_string(sizeof(T)));
  }
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) bytes.copy(reinterpret_cast<char*>(values.data()), bytes.size());
  return values;
}

template <typename T>
std::string WritePacked(const std::vector<T>& values) {
  static_assert(std::is_trivially_copyable_v<T>);
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

// Reads the target_prompt_logprobs of a prompt of `prompt_length` tokens. InvalidArgument: not an
// int64 tensor of prompt_length - 1 rows. The engine has already checked this for the client.
absl::StatusOr<std::shared_ptr<const PromptTargets>> ReadTargets(const lathe::v1::Tensor& tensor,
                                                                 int64_t prompt_length);

// Float32, with the shape and layout of the targets.
lathe::v1::Tensor ToProto(const PromptTargetLogprobs& scored);

lathe::v1::PromptAltTokens ToProto(const PromptAltTokens& drawn);

lathe::v1::TopkLogprobs ToProto(const TopkLogprobs& top);

}  // namespace lathe::worker
