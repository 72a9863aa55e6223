// Tensors as callers send them: bytes against shape and dtype, CSR structure, values.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "protos/lathe/v1/types.pb.h"

namespace lathe::engine {

struct TensorShape {
  int64_t rows = 0;
  int64_t cols = 0;
  bool is_2d = false;
};

// The shape of a one- or two-dimensional tensor of 4- or 8-byte elements whose bytes agree with it.
// `field` names the tensor in errors, e.g. "data[3].loss_fn_inputs.weights". Errors: bad_tensor,
// bad_sparse.
absl::StatusOr<TensorShape> CheckTensor(const v1::Tensor& tensor, const std::string& field);

// Every listed value of an int64 tensor is a token id below `vocab_size`. Error: bad_token with the
// position and the value.
absl::Status CheckTokenValues(const v1::Tensor& tensor, int64_t vocab_size,
                              const std::string& field);

// Every listed value of a float32 tensor is finite. Error: non_finite_input with the position.
absl::Status CheckFinite(const v1::Tensor& tensor, const std::string& field);

// Every value of a dense float32 tensor is `least` or more. Error: bad_loss_input with the position
// and the value.
absl::Status CheckAtLeast(const v1::Tensor& tensor, float least, const std::string& field);

// "float32" and the like.
std::string DTypeName(v1::DType dtype);

}  // namespace lathe::engine
