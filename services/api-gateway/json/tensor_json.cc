#include "services/api-gateway/json/tensor_json.h"

namespace lathe::gateway {
namespace {

// Far above the two that a tensor may have.
constexpr size_t kMaxDims = 8;

std::string PackElements(v1::DType dtype, LargeObject& in, std::string_view name) {
  simdjson::dom::array list = in.Array(name);
  return dtype == v1::DTYPE_INT64 ? PackInt64(list, in.PointerTo(name), in.errors())
                                  : PackFloat32(list, in.PointerTo(name), in.errors());
}

Json ElementsToJson(v1::DType dtype, const std::string& packed) {
  switch (dtype) {
    case v1::DTYPE_INT64:
      return UnpackList<int64_t>(packed);
    case v1::DTYPE_INT32:
      return UnpackList<int32_t>(packed);
    default:
      return UnpackList<float>(packed);
  }
}

}  // namespace

void ReadTensor(LargeObject in, v1::Tensor* tensor) {
  const std::string dtype = in.String("dtype");
  if (dtype != "int64" && dtype != "float32") {
    in.errors().Fail(in.PointerTo("dtype"), "int64 or float32");
    return;
  }
  tensor->set_dtype(dtype == "int64" ? v1::DTYPE_INT64 : v1::DTYPE_FLOAT32);
  if (in.Has("shape")) {
    Unpack(PackInt64(in.Array("shape"), in.PointerTo("shape"), in.errors(), kMaxDims),
           tensor->mutable_shape());
  }
  if (!in.Has("sparse_crow_indices")) {
    tensor->set_dense(PackElements(tensor->dtype(), in, "data"));
    return;
  }
  v1::SparseCsr* sparse = tensor->mutable_sparse_csr();
  sparse->set_values(PackElements(tensor->dtype(), in, "data"));
  sparse->set_crow_indices(PackElements(v1::DTYPE_INT64, in, "sparse_crow_indices"));
  sparse->set_col_indices(PackElements(v1::DTYPE_INT64, in, "sparse_col_indices"));
}

Json TensorToJson(const v1::Tensor& tensor) {
  const bool is_integer = tensor.dtype() == v1::DTYPE_INT64 || tensor.dtype() == v1::DTYPE_INT32;
  Json json = {{"dtype", is_integer ? "int64" : "float32"}, {"shape", Json::array()}};
  for (const int64_t dim : tensor.shape()) json["shape"].push_back(dim);
  if (!tensor.has_sparse_csr()) {
    json["data"] = ElementsToJson(tensor.dtype(), tensor.dense());
    return json;
  }
  const v1::SparseCsr& sparse = tensor.sparse_csr();
  json["data"] = ElementsToJson(tensor.dtype(), sparse.values());
  json["sparse_crow_indices"] = UnpackList<int64_t>(sparse.crow_indices());
  json["sparse_col_indices"] = UnpackList<int64_t>(sparse.col_indices());
  return json;
}

}  // namespace lathe::gateway
