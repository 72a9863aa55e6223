#include "services/worker/rpc/tensor_conversion.h"

#include <bit>
#include <utility>

#include "absl/strings/str_format.h"
#include "libs/common/status_macros.h"

namespace lathe::worker {
namespace {

static_assert(std::endian::native == std::endian::little);

template <typename To, typename From>
absl::StatusOr<std::vector<To>> ReadAs(std::string_view bytes) {
  ASSIGN_OR_RETURN(const std::vector<From> values, ReadPacked<From>(bytes));
  return std::vector<To>(values.begin(), values.end());
}

// bfloat16 is the upper half of a float32.
template <typename To>
absl::StatusOr<std::vector<To>> ReadBfloat16(std::string_view bytes) {
  ASSIGN_OR_RETURN(const std::vector<uint16_t> halves, ReadPacked<uint16_t>(bytes));
  std::vector<To> values;
  values.reserve(halves.size());
  for (const uint16_t half : halves) {
    values.push_back(static_cast<To>(std::bit_cast<float>(uint32_t{half} << 16)));
  }
  return values;
}

template <typename To>
absl::StatusOr<std::vector<To>> ReadElements(lathe::v1::DType dtype, std::string_view bytes) {
  const bool is_float = dtype == lathe::v1::DTYPE_FLOAT32 || dtype == lathe::v1::DTYPE_BFLOAT16;
  if (std::is_integral_v<To> && is_float) {
    return absl::InvalidArgumentError("dtype is a floating one, an integer one is wanted");
  }
  switch (dtype) {
    case lathe::v1::DTYPE_FLOAT32:
      return ReadAs<To, float>(bytes);
    case lathe::v1::DTYPE_INT64:
      return ReadAs<To, int64_t>(bytes);
    case lathe::v1::DTYPE_INT32:
      return ReadAs<To, int32_t>(bytes);
    case lathe::v1::DTYPE_BFLOAT16:
      return ReadBfloat16<To>(bytes);
    default:
      return absl::InvalidArgumentError(absl::StrFormat("dtype is %d, not a known one", dtype));
  }
}

// Sets rows and cols from the declared shape. Without one, the shape is (num_elements).
template <typename T>
absl::Status ReadShape(const lathe::v1::Tensor& tensor, int64_t num_elements, Matrix<T>* out) {
  if (tensor.shape_size() > 2) {
    return absl::InvalidArgumentError(
        absl::StrFormat("tensor has %d dimensions, limit is 2", tensor.shape_size()));
  }
  out->is_2d = tensor.shape_size() == 2;
  out->rows = tensor.shape_size() > 0 ? tensor.shape(0) : num_elements;
  out->cols = out->is_2d ? tensor.shape(1) : 1;
  // 2^31 cells is far more than a request body of 512 MiB can hold densely.
  constexpr int64_t kMaxCells = int64_t{1} << 31;
  if (out->rows < 0 || out->cols < 0 || (out->cols > 0 && out->rows > kMaxCells / out->cols)) {
    return absl::InvalidArgumentError(absl::StrFormat("tensor shape is %d x %d, limit is %d cells",
                                                      out->rows, out->cols, kMaxCells));
  }
  return absl::OkStatus();
}

template <typename T>
absl::StatusOr<Matrix<T>> ReadDense(const lathe::v1::Tensor& tensor) {
  Matrix<T> out;
  ASSIGN_OR_RETURN(out.values, ReadElements<T>(tensor.dtype(), tensor.dense()));
  RETURN_IF_ERROR(ReadShape(tensor, static_cast<int64_t>(out.values.size()), &out));
  if (static_cast<int64_t>(out.values.size()) != out.rows * out.cols) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "tensor has %d elements, its shape is %d x %d", out.values.size(), out.rows, out.cols));
  }
  return out;
}

template <typename T>
absl::StatusOr<Matrix<T>> ReadCsr(const lathe::v1::Tensor& tensor) {
  const lathe::v1::SparseCsr& csr = tensor.sparse_csr();
  ASSIGN_OR_RETURN(const std::vector<T> values, ReadElements<T>(tensor.dtype(), csr.values()));
  ASSIGN_OR_RETURN(const std::vector<int64_t> row_starts, ReadPacked<int64_t>(csr.crow_indices()));
  ASSIGN_OR_RETURN(const std::vector<int64_t> columns, ReadPacked<int64_t>(csr.col_indices()));
  Matrix<T> out;
  RETURN_IF_ERROR(ReadShape(tensor, /*num_elements=*/0, &out));
  const int64_t num_values = static_cast<int64_t>(values.size());
  if (!out.is_2d || static_cast<int64_t>(row_starts.size()) != out.rows + 1 ||
      columns.size() != values.size() || row_starts.front() != 0 ||
      row_starts.back() != num_values) {
    return absl::InvalidArgumentError(
        absl::StrFormat("sparse tensor has %d values, %d columns and %d row starts for %d rows",
                        values.size(), columns.size(), row_starts.size(), out.rows));
  }
  out.values.assign(static_cast<size_t>(out.rows * out.cols), T{0});
  for (int64_t row = 0; row < out.rows; ++row) {
    const int64_t begin = row_starts[row];
    const int64_t end = row_starts[row + 1];
    if (begin < 0 || end < begin || end > num_values) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "row %d of a sparse tensor is [%d, %d) of %d", row, begin, end, num_values));
    }
    for (int64_t i = begin; i < end; ++i) {
      if (columns[i] < 0 || columns[i] >= out.cols) {
        return absl::InvalidArgumentError(absl::StrFormat(
            "column %d of row %d is out of range, limit is %d", columns[i], row, out.cols - 1));
      }
      out.values[row * out.cols + columns[i]] = values[i];
    }
  }
  return out;
}

template <typename T>
absl::StatusOr<Matrix<T>> Read(const lathe::v1::Tensor& tensor) {
  if (tensor.has_sparse_csr()) return ReadCsr<T>(tensor);
  return ReadDense<T>(tensor);
}

void SetShape(int64_t rows, int64_t columns, lathe::v1::Tensor* tensor) {
  tensor->add_shape(rows);
  tensor->add_shape(columns);
}

absl::Status ReadDense(const lathe::v1::Tensor& tensor, int64_t num_rows, PromptTargets& targets) {
  ASSIGN_OR_RETURN(targets.tokens, ReadPacked<int64_t>(tensor.dense()));
  for (int64_t row = 0; row <= num_rows; ++row) {
    targets.offsets.push_back(row * targets.num_columns);
  }
  return absl::OkStatus();
}

absl::Status ReadSparse(const lathe::v1::SparseCsr& sparse, PromptTargets& targets) {
  targets.is_sparse = true;
  ASSIGN_OR_RETURN(targets.tokens, ReadPacked<int64_t>(sparse.values()));
  ASSIGN_OR_RETURN(targets.offsets, ReadPacked<int64_t>(sparse.crow_indices()));
  ASSIGN_OR_RETURN(targets.columns, ReadPacked<int64_t>(sparse.col_indices()));
  return absl::OkStatus();
}

// Returns true if the offsets are valid for `num_rows` rows and the number of cells.
bool HasSoundRows(const PromptTargets& targets, int64_t num_rows) {
  const auto num_cells = static_cast<int64_t>(targets.tokens.size());
  const std::vector<int64_t>& offsets = targets.offsets;
  if (static_cast<int64_t>(offsets.size()) != num_rows + 1 || offsets.front() != 0) return false;
  for (int64_t row = 0; row < num_rows; ++row) {
    if (offsets[row + 1] < offsets[row]) return false;
  }
  return offsets.back() == num_cells &&
         (!targets.is_sparse || targets.columns.size() == targets.tokens.size());
}

}  // namespace

absl::StatusOr<Matrix<int64_t>> ReadIntegers(const lathe::v1::Tensor& tensor) {
  return Read<int64_t>(tensor);
}

absl::StatusOr<Matrix<float>> ReadFloats(const lathe::v1::Tensor& tensor) {
  return Read<float>(tensor);
}

absl::StatusOr<std::shared_ptr<const PromptTargets>> ReadTargets(const lathe::v1::Tensor& tensor,
                                                                 int64_t prompt_length) {
  const int64_t num_rows = prompt_length - 1;
  PromptTargets targets;
  if (tensor.shape_size() != 2 || tensor.shape(0) != num_rows ||
      tensor.dtype() != lathe::v1::DTYPE_INT64) {
    return absl::InvalidArgumentError(
        absl::StrFormat("target_prompt_logprobs is not an int64 tensor of %d rows", num_rows));
  }
  targets.num_columns = tensor.shape(1);
  if (tensor.has_sparse_csr()) {
    RETURN_IF_ERROR(ReadSparse(tensor.sparse_csr(), targets));
  } else {
    RETURN_IF_ERROR(ReadDense(tensor, num_rows, targets));
  }
  if (!HasSoundRows(targets, num_rows)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("target_prompt_logprobs has %d cells, its shape is %d x %d",
                        targets.tokens.size(), num_rows, targets.num_columns));
  }
  return std::make_shared<const PromptTargets>(std::move(targets));
}

lathe::v1::Tensor ToProto(const PromptTargetLogprobs& scored) {
  const PromptTargets& targets = *scored.targets;
  lathe::v1::Tensor tensor;
  tensor.set_dtype(lathe::v1::DTYPE_FLOAT32);
  SetShape(static_cast<int64_t>(targets.offsets.size()) - 1, targets.num_columns, &tensor);
  if (!targets.is_sparse) {
    tensor.set_dense(WritePacked(scored.logprobs));
    return tensor;
  }
  lathe::v1::SparseCsr* sparse = tensor.mutable_sparse_csr();
  sparse->set_values(WritePacked(scored.logprobs));
  sparse->set_crow_indices(WritePacked(targets.offsets));
  sparse->set_col_indices(WritePacked(targets.columns));
  return tensor;
}

lathe::v1::PromptAltTokens ToProto(const PromptAltTokens& drawn) {
  const int64_t num_rows = static_cast<int64_t>(drawn.tokens.size()) / drawn.k;
  lathe::v1::PromptAltTokens proto;
  proto.mutable_tokens()->set_dtype(lathe::v1::DTYPE_INT32);
  SetShape(num_rows, drawn.k, proto.mutable_tokens());
  proto.mutable_tokens()->set_dense(WritePacked(drawn.tokens));
  proto.mutable_logprobs()->set_dtype(lathe::v1::DTYPE_FLOAT32);
  SetShape(num_rows, drawn.k, proto.mutable_logprobs());
  proto.mutable_logprobs()->set_dense(WritePacked(drawn.logprobs));
  return proto;
}

lathe::v1::TopkLogprobs ToProto(const TopkLogprobs& top) {
  lathe::v1::TopkLogprobs proto;
  proto.set_token_ids(WritePacked(top.token_ids));
  proto.set_logprobs(WritePacked(top.logprobs));
  proto.set_k(top.k);
  proto.set_length(top.length);
  return proto;
}

}  // namespace lathe::worker
