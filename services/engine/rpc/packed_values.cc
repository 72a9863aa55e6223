#include "services/engine/rpc/packed_values.h"

#include <string>
#include <utility>

namespace lathe::engine {
namespace {

// Beyond this bound, float32 cannot represent every integer.
constexpr int64_t kMaxExactInteger = int64_t{1} << 24;

bool IsIntegerNumbers(const v1::NamedTensor& input) {
  const v1::DType dtype = input.tensor().dtype();
  return input.name() != "target_tokens" && (dtype == v1::DTYPE_INT64 || dtype == v1::DTYPE_INT32);
}

// Returns false if not all values are exact or the bytes make no whole number of elements.
template <typename Integer>
bool Widen(std::string& bytes) {
  if (bytes.size() % sizeof(Integer) != 0) return false;
  const PackedValues<Integer> values(bytes);
  std::string floats;
  floats.reserve(bytes.size() * sizeof(float) / sizeof(Integer));
  for (int64_t i = 0; i < values.size(); ++i) {
    const int64_t value = values[i];
    if (value > kMaxExactInteger || value < -kMaxExactInteger) return false;
    const auto number = static_cast<float>(value);
    floats.append(reinterpret_cast<const char*>(&number), sizeof(number));
  }
  bytes = std::move(floats);
  return true;
}

void WidenTensor(v1::Tensor& tensor) {
  std::string& bytes = tensor.has_sparse_csr() ? *tensor.mutable_sparse_csr()->mutable_values()
                                               : *tensor.mutable_dense();
  const bool is_wide = tensor.dtype() == v1::DTYPE_INT64;
  if (is_wide ? Widen<int64_t>(bytes) : Widen<int32_t>(bytes)) {
    tensor.set_dtype(v1::DTYPE_FLOAT32);
  }
}

}  // namespace

bool HasIntegerNumbers(const v1::ForwardBackwardRequest& request) {
  for (const v1::Datum& datum : request.data()) {
    for (const v1::NamedTensor& input : datum.loss_fn_inputs()) {
      if (IsIntegerNumbers(input)) return true;
    }
  }
  return false;
}

v1::ForwardBackwardRequest WidenIntegers(v1::ForwardBackwardRequest request) {
  for (v1::Datum& datum : *request.mutable_data()) {
    for (v1::NamedTensor& input : *datum.mutable_loss_fn_inputs()) {
      if (IsIntegerNumbers(input)) WidenTensor(*input.mutable_tensor());
    }
  }
  return request;
}

}  // namespace lathe::engine
