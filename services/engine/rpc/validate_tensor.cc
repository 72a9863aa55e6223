#include "services/engine/rpc/validate_tensor.h"

#include <cmath>

#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "libs/common/status_macros.h"
#include "services/engine/rpc/packed_values.h"
#include "services/engine/rpc/validation.h"

namespace lathe::engine {

namespace {

// Bound of a sparse tensor's dense size, because the worker expands it.
constexpr int64_t kMaxSparseElements = int64_t{1} << 25;

// Returns 0 for a dtype that callers may not send.
int64_t ElementBytes(v1::DType dtype) {
  switch (dtype) {
    case v1::DTYPE_FLOAT32:
    case v1::DTYPE_INT32:
      return 4;
    case v1::DTYPE_INT64:
      return 8;
    default:
      return 0;
  }
}

std::string ShapeText(const v1::Tensor& tensor) {
  std::string text = "[";
  for (const int64_t dim : tensor.shape()) {
    absl::StrAppendFormat(&text, "%s%d", text.size() > 1 ? ", " : "", dim);
  }
  return text + "]";
}

absl::StatusOr<TensorShape> DeclaredShape(const v1::Tensor& tensor, const std::string& field) {
  if (tensor.shape_size() > 2) {
    return Invalid("bad_tensor", field,
                   absl::StrFormat("%s: shape %s has %d dimensions, limit is 2", field,
                                   ShapeText(tensor), tensor.shape_size()));
  }
  for (const int64_t dim : tensor.shape()) {
    if (dim < 0 || dim > (int64_t{1} << 31)) {
      return Invalid(
          "bad_tensor", field,
          absl::StrFormat("%s: shape %s has a dimension out of range", field, ShapeText(tensor)));
    }
  }
  TensorShape shape;
  shape.is_2d = tensor.shape_size() == 2;
  shape.rows = tensor.shape_size() > 0 ? tensor.shape(0) : -1;
  shape.cols = shape.is_2d ? tensor.shape(1) : 1;
  return shape;
}

absl::StatusOr<TensorShape> CheckDense(const v1::Tensor& tensor, TensorShape shape,
                                       const std::string& field) {
  const int64_t element = ElementBytes(tensor.dtype());
  const auto bytes = static_cast<int64_t>(tensor.dense().size());
  // Without a shape, the tensor has one dimension and the length of the data.
  if (shape.rows < 0 && bytes % element == 0) shape.rows = bytes / element;
  // Dimensions are at most 2^31, so their product with the element size may overflow. Divide
  // instead.
  const bool fits =
      shape.rows >= 0 && bytes % element == 0 &&
      (shape.rows == 0 || shape.cols == 0
           ? bytes == 0
           : bytes / element / shape.rows == shape.cols && bytes / element % shape.rows == 0);
  if (fits) return shape;
  return Invalid("bad_tensor", field,
                 absl::StrFormat("%s: %d bytes do not make a %s tensor of shape %s", field, bytes,
                                 DTypeName(tensor.dtype()), ShapeText(tensor)));
}

absl::Status BadSparse(const std::string& field, const std::string& what) {
  return Invalid("bad_sparse", field, absl::StrFormat("%s: %s", field, what));
}

absl::Status CheckRows(const PackedValues<int64_t>& crow, const PackedValues<int64_t>& col,
                       int64_t cols, const std::string& field) {
  const int64_t rows = crow.size() - 1;
  if (crow[0] != 0 || crow[rows] != col.size()) {
    return BadSparse(field, absl::StrFormat("crow_indices run from %d to %d, expected 0 to %d",
                                            crow[0], crow[rows], col.size()));
  }
  for (int64_t row = 0; row < rows; ++row) {
    if (crow[row + 1] < crow[row] || crow[row + 1] > col.size()) {
      return BadSparse(field, absl::StrFormat("crow_indices[%d] is %d after %d", row + 1,
                                              crow[row + 1], crow[row]));
    }
    for (int64_t i = crow[row]; i < crow[row + 1]; ++i) {
      const int64_t least = i == crow[row] ? 0 : col[i - 1] + 1;
      if (col[i] < least || col[i] >= cols) {
        return BadSparse(field, absl::StrFormat("col_indices[%d] is %d, expected %d to %d", i,
                                                col[i], least, cols - 1));
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<TensorShape> CheckSparse(const v1::Tensor& tensor, const TensorShape& shape,
                                        const std::string& field) {
  if (!shape.is_2d) return BadSparse(field, "a sparse tensor needs a shape of two dimensions");
  if (shape.rows > 0 && shape.cols > kMaxSparseElements / shape.rows) {
    return BadSparse(field, absl::StrFormat("shape %s stands for more than %d elements",
                                            ShapeText(tensor), kMaxSparseElements));
  }
  const v1::SparseCsr& sparse = tensor.sparse_csr();
  const PackedValues<int64_t> crow(sparse.crow_indices());
  const PackedValues<int64_t> col(sparse.col_indices());
  if (sparse.crow_indices().size() % 8 != 0 || crow.size() != shape.rows + 1) {
    return BadSparse(field, absl::StrFormat("crow_indices has %d bytes, expected %d int64",
                                            sparse.crow_indices().size(), shape.rows + 1));
  }
  const int64_t element = ElementBytes(tensor.dtype());
  if (sparse.col_indices().size() % 8 != 0 ||
      static_cast<int64_t>(sparse.values().size()) != col.size() * element) {
    return BadSparse(field, absl::StrFormat("%d bytes of values for %d bytes of col_indices",
                                            sparse.values().size(), sparse.col_indices().size()));
  }
  RETURN_IF_ERROR(CheckRows(crow, col, shape.cols, field));
  return shape;
}

const std::string& ListedValues(const v1::Tensor& tensor) {
  return tensor.has_sparse_csr() ? tensor.sparse_csr().values() : tensor.dense();
}

}  // namespace

std::string DTypeName(v1::DType dtype) {
  switch (dtype) {
    case v1::DTYPE_FLOAT32:
      return "float32";
    case v1::DTYPE_INT64:
      return "int64";
    case v1::DTYPE_INT32:
      return "int32";
    case v1::DTYPE_BFLOAT16:
      return "bfloat16";
    default:
      return "unknown";
  }
}

absl::StatusOr<TensorShape> CheckTensor(const v1::Tensor& tensor, const std::string& field) {
  if (ElementBytes(tensor.dtype()) == 0) {
    return Invalid("bad_tensor", field,
                   absl::StrFormat("%s: dtype is %s, allowed are float32, int64, int32", field,
                                   DTypeName(tensor.dtype())));
  }
  ASSIGN_OR_RETURN(const TensorShape shape, DeclaredShape(tensor, field));
  if (tensor.has_sparse_csr()) return CheckSparse(tensor, shape, field);
  return CheckDense(tensor, shape, field);
}

absl::Status CheckTokenValues(const v1::Tensor& tensor, int64_t vocab_size,
                              const std::string& field) {
  const PackedValues<int64_t> values(ListedValues(tensor));
  for (int64_t i = 0; i < values.size(); ++i) {
    if (values[i] < 0 || values[i] >= vocab_size) {
      return Invalid("bad_token", field,
                     absl::StrFormat("%s: token at position %d is %d, vocabulary size is %d", field,
                                     i, values[i], vocab_size));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckFinite(const v1::Tensor& tensor, const std::string& field) {
  const PackedValues<float> values(ListedValues(tensor));
  for (int64_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) {
      return Invalid("non_finite_input", field,
                     absl::StrFormat("%s: value at position %d is %f, expected a finite number",
                                     field, i, values[i]));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckAtLeast(const v1::Tensor& tensor, float least, const std::string& field) {
  const PackedValues<float> values(tensor.dense());
  for (int64_t i = 0; i < values.size(); ++i) {
    if (values[i] < least) {
      return Invalid("bad_loss_input", field,
                     absl::StrFormat("%s: value at position %d is %g, expected at least %g", field,
                                     i, values[i], least));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> CheckChunks(const Chunks& chunks, int64_t vocab_size,
                                    const std::string& field) {
  int64_t position = 0;
  for (int i = 0; i < chunks.size(); ++i) {
    const v1::Chunk& chunk = chunks[i];
    if (chunk.chunk_case() != v1::Chunk::kTokens) {
      return Invalid("unsupported_chunk", field,
                     absl::StrFormat("%s: chunk %d is of kind '%s', this server takes "
                                     "encoded_text only",
                                     field, i, chunk.unsupported()));
    }
    if (chunk.tokens().size() % sizeof(int32_t) != 0) {
      return Invalid("bad_tensor", field,
                     absl::StrFormat("%s: chunk %d has %d bytes, not a multiple of 4", field, i,
                                     chunk.tokens().size()));
    }
    const PackedValues<int32_t> tokens(chunk.tokens());
    for (int64_t j = 0; j < tokens.size(); ++j, ++position) {
      if (tokens[j] < 0 || tokens[j] >= vocab_size) {
        return Invalid("bad_token", field,
                       absl::StrFormat("%s: token at position %d is %d, vocabulary size is %d",
                                       field, position, tokens[j], vocab_size));
      }
    }
  }
  return position;
}

}  // namespace lathe::engine
