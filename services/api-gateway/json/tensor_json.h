// Tensors as the SDK's JSON has them (tinker-api 15.3): {"data", "dtype", "shape"}, for CSR also
// "sparse_crow_indices" and "sparse_col_indices".
#pragma once

#include <cmath>
#include <cstring>
#include <string>
#include <type_traits>

#include "protos/lathe/v1/types.pb.h"
#include "services/api-gateway/json/large_reader.h"
#include "services/api-gateway/json/parse_json.h"

namespace lathe::gateway {

// Little-endian elements as they travel; a trailing partial element is left out. Null
// stands for what is not finite.
template <typename T>
Json UnpackList(const std::string& packed) {
  Json list = Json::array();
  const size_t end = packed.size() / sizeof(T);
  for (size_t i = 0; i < end; ++i) {
    T value;
    std::memcpy(&value, packed.data() + i * sizeof(T), sizeof(T));
    if constexpr (std::is_floating_point_v<T>) {
      list.push_back(std::isfinite(value) ? Json(value) : Json(nullptr));
    } else {
      list.push_back(value);
    }
  }
  return list;
}

// What does not fit the shape is for the engine to say.
void ReadTensor(LargeObject in, v1::Tensor* tensor);

// Integers are called int64 whatever their width; null stands for what is not finite.
Json TensorToJson(const v1::Tensor& tensor);

}  // namespace lathe::gateway
