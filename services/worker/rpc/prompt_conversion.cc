#include "services/worker/rpc/prompt_conversion.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "libs/common/status_macros.h"
#include "services/worker/rpc/tensor_conversion.h"

namespace lathe::worker {
namespace {

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
