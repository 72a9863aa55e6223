// Validation of a caller's tensors: bytes against shape and dtype, CSR structure, values.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "protos/lathe/v1/types.pb.h"

namespace lathe::engine {

struct TensorShape {
  int64_t rows = 0;
  int64_t cols = 0;
  bool is_2d = false;
};

// Returns the shape of a one- or two-dimensional tensor of 4- or 8-byte elements whose bytes match
// it. `field` names the tensor in errors, e.g. "data[3].loss_fn_inputs.weights". Errors:
// bad_tensor, bad_sparse.
absl::StatusOr<TensorShape> CheckTensor(const v1::Tensor& tensor, const std::string& field);

// Requires every stored value of an int64 tensor to be a token id below `vocab_size`. Error:
// bad_token with the position and the value.
absl::Status CheckTokenValues(const v1::Tensor& tensor, int64_t vocab_size,
                              const std::string& field);

// Requires every stored value of a float32 tensor to be finite. Error: non_finite_input with the
// position.
absl::Status CheckFinite(const v1::Tensor& tensor, const std::string& field);

// Requires every value of a dense float32 tensor to be at least `least`. Error: bad_loss_input with
// the position and the value.
absl::Status CheckAtLeast(const v1::Tensor& tensor, float least, const std::string& field);

// Returns the name of a dtype, e.g. "float32".
std::string DTypeName(v1::DType dtype);

using Chunks = google::protobuf::RepeatedPtrField<v1::Chunk>;

// Returns the number of tokens in all chunks; each must be below `vocab_size`. `field` names the
// chunks in errors: unsupported_chunk (with its wire name), bad_tensor, bad_token (with the
// position).
absl::StatusOr<int64_t> CheckChunks(const Chunks& chunks, int64_t vocab_size,
                                    const std::string& field);

}  // namespace lathe::engine
