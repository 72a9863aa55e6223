#include "services/engine/rpc/packed_values.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

namespace lathe::engine {
namespace {

template <typename T>
std::string Packed(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

v1::ForwardBackwardRequest WithInput(const std::string& name, v1::DType dtype,
                                     const std::string& bytes) {
  v1::ForwardBackwardRequest request;
  v1::NamedTensor* const input = request.add_data()->add_loss_fn_inputs();
  input->set_name(name);
  input->mutable_tensor()->set_dtype(dtype);
  input->mutable_tensor()->set_dense(bytes);
  return request;
}

const v1::Tensor& InputOf(const v1::ForwardBackwardRequest& request) {
  return request.data(0).loss_fn_inputs(0).tensor();
}

TEST_CASE("WidenIntegers: integer weights become the same floats", "[validate]") {
  const auto int64s = WithInput("weights", v1::DTYPE_INT64, Packed<int64_t>({0, 1, -(1 << 24)}));
  const auto int32s = WithInput("weights", v1::DTYPE_INT32, Packed<int32_t>({0, 1, -(1 << 24)}));
  for (const auto& request : {int64s, int32s}) {
    REQUIRE(HasIntegerNumbers(request));
    const auto widened = WidenIntegers(request);
    CHECK(InputOf(widened).dtype() == v1::DTYPE_FLOAT32);
    CHECK(InputOf(widened).dense() == Packed<float>({0, 1, -16777216}));
  }
}

TEST_CASE("WidenIntegers: a sparse tensor keeps its places", "[validate]") {
  auto request = WithInput("weights", v1::DTYPE_INT64, "");
  v1::SparseCsr* const sparse =
      request.mutable_data(0)->mutable_loss_fn_inputs(0)->mutable_tensor()->mutable_sparse_csr();
  sparse->set_values(Packed<int64_t>({7}));
  sparse->set_col_indices(Packed<int64_t>({3}));
  const auto widened = WidenIntegers(request);
  CHECK(InputOf(widened).sparse_csr().values() == Packed<float>({7}));
  CHECK(InputOf(widened).sparse_csr().col_indices() == Packed<int64_t>({3}));
}

TEST_CASE("WidenIntegers: what is not exact, and tokens, stay as they are", "[validate]") {
  const std::string large = Packed<int64_t>({(1 << 24) + 1});
  CHECK(InputOf(WidenIntegers(WithInput("weights", v1::DTYPE_INT64, large))).dense() == large);
  CHECK(InputOf(WidenIntegers(WithInput("weights", v1::DTYPE_INT64, "123"))).dense() == "123");
  CHECK_FALSE(HasIntegerNumbers(WithInput("target_tokens", v1::DTYPE_INT64, large)));
  CHECK_FALSE(HasIntegerNumbers(WithInput("weights", v1::DTYPE_FLOAT32, "1234")));
}

}  // namespace
}  // namespace lathe::engine
