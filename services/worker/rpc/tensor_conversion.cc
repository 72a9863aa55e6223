#include "services/worker/rpc/tensor_conversion.h"

#include <bit>

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

}  // namespace

absl::StatusOr<Matrix<int64_t>> ReadIntegers(const lathe::v1::Tensor& tensor) {
  return Read<int64_t>(tensor);
}

absl::StatusOr<Matrix<float>> ReadFloats(const lathe::v1::Tensor& tensor) {
  return Read<float>(tensor);
}

}  // namespace lathe::worker
