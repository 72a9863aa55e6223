#include "services/worker/rpc/tensor_conversion.h"

#include <catch2/catch.hpp>

namespace lathe::worker {
namespace {

lathe::v1::Tensor Sparse(std::vector<int64_t> shape, std::vector<float> values,
                         std::vector<int64_t> row_starts, std::vector<int64_t> columns) {
  lathe::v1::Tensor tensor;
  tensor.set_dtype(lathe::v1::DTYPE_FLOAT32);
  for (const int64_t size : shape) tensor.add_shape(size);
  tensor.mutable_sparse_csr()->set_values(WritePacked(values));
  tensor.mutable_sparse_csr()->set_crow_indices(WritePacked(row_starts));
  tensor.mutable_sparse_csr()->set_col_indices(WritePacked(columns));
  return tensor;
}

TEST_CASE("a tensor without a shape is one-dimensional", "[rpc]") {
  lathe::v1::Tensor tensor;
  tensor.set_dtype(lathe::v1::DTYPE_INT64);
  tensor.set_dense(WritePacked(std::vector<int64_t>{5, 6, 7}));
  const auto matrix = ReadIntegers(tensor);
  REQUIRE(matrix.ok());
  CHECK(matrix->rows == 3);
  CHECK(matrix->cols == 1);
  CHECK_FALSE(matrix->is_2d);
  CHECK(matrix->values == std::vector<int64_t>{5, 6, 7});
}

TEST_CASE("bfloat16 and integer weights become floats", "[rpc]") {
  lathe::v1::Tensor bf16;
  bf16.set_dtype(lathe::v1::DTYPE_BFLOAT16);
  bf16.set_dense(WritePacked(std::vector<uint16_t>{0x3f80, 0xc020}));
  CHECK(ReadFloats(bf16)->values == std::vector<float>{1.0f, -2.5f});
  lathe::v1::Tensor ints;
  ints.set_dtype(lathe::v1::DTYPE_INT32);
  ints.set_dense(WritePacked(std::vector<int32_t>{3, -1}));
  CHECK(ReadFloats(ints)->values == std::vector<float>{3.0f, -1.0f});
}

TEST_CASE("a sparse tensor is filled with zeros where it lists nothing", "[rpc]") {
  const auto matrix = ReadFloats(Sparse({3, 4}, {1.5f, 2.5f, -1.0f}, {0, 2, 2, 3}, {0, 3, 1}));
  REQUIRE(matrix.ok());
  CHECK(matrix->is_2d);
  CHECK(matrix->values == std::vector<float>{1.5f, 0, 0, 2.5f, 0, 0, 0, 0, 0, -1.0f, 0, 0});
}

TEST_CASE("a sparse tensor whose indices are out of range is refused", "[rpc]") {
  CHECK_FALSE(ReadFloats(Sparse({1, 2}, {1.0f}, {0, 1}, {2})).ok());
  CHECK_FALSE(ReadFloats(Sparse({2, 2}, {1.0f}, {0, 5, 1}, {0})).ok());
  CHECK_FALSE(ReadFloats(Sparse({2, 2}, {1.0f}, {0, 1}, {0})).ok());
  CHECK_FALSE(ReadFloats(Sparse({int64_t{1} << 40, int64_t{1} << 40}, {}, {0}, {})).ok());
}

TEST_CASE("data that does not fit its shape or dtype is refused", "[rpc]") {
  lathe::v1::Tensor tensor;
  tensor.set_dtype(lathe::v1::DTYPE_FLOAT32);
  tensor.add_shape(3);
  tensor.set_dense(WritePacked(std::vector<float>{1, 2}));
  CHECK_FALSE(ReadFloats(tensor).ok());
  tensor.set_dense("12345");
  CHECK_FALSE(ReadFloats(tensor).ok());
  tensor.set_dense(WritePacked(std::vector<float>{1, 2, 3}));
  CHECK_FALSE(ReadIntegers(tensor).ok());
}

}  // namespace
}  // namespace lathe::worker
