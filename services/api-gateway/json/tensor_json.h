// Tensors in the SDK's JSON form: {"data", "dtype", "shape"}. CSR tensors also
// have "sparse_crow_indices" and "sparse_col_indices".
#pragma once

#include <cmath>
#include <cstring>
#include <string>
#include <type_traits>

#include "protos/lathe/v1/types.pb.h"
#include "services/api-gateway/json/large_reader.h"
#include "services/api-gateway/json/parse_json.h"

namespace lathe::gateway {

// Converts packed little-endian elements to a list. Drops a trailing partial element. Elements that
// are not finite become null.
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

// Reads a tensor. Does not compare its data with its shape, because the engine does.
void ReadTensor(LargeObject in, v1::Tensor* tensor);

// Integers of any width have dtype "int64". Elements that are not finite become null.
Json TensorToJson(const v1::Tensor& tensor);

}  // namespace lathe::gateway
