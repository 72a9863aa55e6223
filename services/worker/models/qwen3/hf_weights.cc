#include "services/worker/models/qwen3/hf_weights.h"

#include <algorithm>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>

#include "libs/common/status_macros.h"

namespace lathe::worker {
namespace {

// Of shares of a block on different devices, for kernels.
constexpr int64_t kAlignment = 64;

// `shard` of `size` rows or columns that a tensor of the folder has.
struct Part {
  std::string name;
  int64_t size = 0;
  Shard shard;
};

// Rows of several tensors on top of each other, or columns of one.
struct Matrix {
  std::vector<Part> parts;
  int64_t dim = 0;         // that the shards cut
  int64_t other_size = 0;  // of the other one

  int64_t CutSize() const {
    int64_t size = 0;
    for (const Part& part : parts) size += part.shard.padded_size();
    return size;
  }
  int64_t n() const { return dim == 0 ? CutSize() : other_size; }
  int64_t k() const { return dim == 0 ? other_size : CutSize(); }
};

// In the order in which they lie in a block.
struct LayerMatrices {
  Matrix qkv, o, gate_up, down;
};

class Reader {
 public:
  Reader(HfTensors& tensors, at::Device device)
      : tensors_(tensors), options_(at::TensorOptions().dtype(at::kFloat).device(device)) {}

  // A norm: fp32.
  absl::StatusOr<at::Tensor> Read(const std::string& name, at::IntArrayRef shape) {
    at::Tensor out = at::empty(shape, options_);
    RETURN_IF_ERROR(tensors_.ReadInto(name, out));
    return out;
  }

  absl::StatusOr<BaseWeight> Read(const Matrix& matrix) {
    BaseWeight out(matrix.n(), matrix.k(), DtypeOf(matrix), options_.device());
    RETURN_IF_ERROR(Fill(matrix, out));
    return out;
  }

  // At the beginning of `block`, which becomes what is behind it.
  absl::StatusOr<BaseWeight> Read(const Matrix& matrix, at::Tensor& block) {
    const int64_t num_bytes = NumBytes(matrix);
    BaseWeight out(matrix.n(), matrix.k(), DtypeOf(matrix), block.narrow(0, 0, num_bytes));
    RETURN_IF_ERROR(Fill(matrix, out));
    const int64_t end = Aligned(num_bytes);
    block = block.narrow(0, end, block.size(0) - end);
    return out;
  }

  // Of a block.
  int64_t BlockBytes(const LayerMatrices& layer) const {
    int64_t sum = 0;
    for (const Matrix* matrix : {&layer.qkv, &layer.o, &layer.gate_up, &layer.down}) {
      sum += Aligned(NumBytes(*matrix));
    }
    return sum;
  }

  absl::StatusOr<at::Tensor> ReadBias(const Matrix& matrix) {
    at::Tensor out = at::zeros({matrix.CutSize()}, options_);
    int64_t row = 0;
    for (const Part& part : matrix.parts) {
      ASSIGN_OR_RETURN(const at::Tensor tensor, tensors_.ReadPart(part.name + ".bias", {part.size},
                                                                  /*dim=*/0, part.shard));
      out.narrow(0, row, part.shard.size).copy_(tensor);
      row += part.shard.padded_size();
    }
    return out;
  }

 private:
  static int64_t Aligned(int64_t num_bytes) {
    return (num_bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  int64_t NumBytes(const Matrix& matrix) const {
    return BaseWeight::NumBytes(matrix.n(), matrix.k(), DtypeOf(matrix), options_.device());
  }

  absl::Status Fill(const Matrix& matrix, BaseWeight& out) {
    int64_t row = 0;
    for (const Part& part : matrix.parts) {
      std::vector<int64_t> shape = {part.size, matrix.other_size};
      if (matrix.dim == 1) std::swap(shape[0], shape[1]);
      ASSIGN_OR_RETURN(const at::Tensor tensor,
                       tensors_.ReadPart(part.name + ".weight", shape, matrix.dim, part.shard));
      out.SetRows(row, tensor);
      row += part.shard.padded_size();
    }
    return absl::OkStatus();
  }

  // Of one matrix made of the parts.
  at::ScalarType DtypeOf(const Matrix& matrix) const {
    const auto& parts = matrix.parts;
    const bool is_bf16 = std::all_of(parts.begin(), parts.end(), [this](const Part& part) {
      return tensors_.DtypeOf(part.name + ".weight") == at::kBFloat16;
    });
    return is_bf16 ? at::kBFloat16 : at::kFloat;
  }

  HfTensors& tensors_;
  at::TensorOptions options_;
};

std::string LayerPrefix(int64_t layer) { return absl::StrCat("model.layers.", layer, "."); }

LayerMatrices MatricesOf(const ModelPart& part, int64_t layer) {
  const std::string attention = LayerPrefix(layer) + "self_attn.";
  const std::string mlp = LayerPrefix(layer) + "mlp.";
  const ModelSpec& spec = part.whole;
  const int64_t hidden = spec.hidden_size;
  const int64_t q_size = spec.num_heads * spec.head_dim;
  const int64_t kv_size = spec.num_kv_heads * spec.head_dim;
  const int64_t mlp_size = spec.intermediate_size;
  return {.qkv = {.parts = {{attention + "q_proj", q_size, part.queries},
                            {attention + "k_proj", kv_size, part.keys},
                            {attention + "v_proj", kv_size, part.keys}},
                  .dim = 0,
                  .other_size = hidden},
          .o = {.parts = {{attention + "o_proj", q_size, part.queries}},
                .dim = 1,
                .other_size = hidden},
          .gate_up = {.parts = {{mlp + "gate_proj", mlp_size, part.intermediate},
                                {mlp + "up_proj", mlp_size, part.intermediate}},
                      .dim = 0,
                      .other_size = hidden},
          .down = {.parts = {{mlp + "down_proj", mlp_size, part.intermediate}},
                   .dim = 1,
                   .other_size = hidden}};
}

Matrix RowsOfTokens(const std::string& name, const ModelPart& part) {
  return {.parts = {{name, part.whole.vocab_size, part.vocabulary}},
          .dim = 0,
          .other_size = part.whole.hidden_size};
}

// Norms and biases, which each rank has.
absl::Status ReadVectors(const ModelPart& part, int64_t layer, const LayerMatrices& matrices,
                         Reader& reader, Qwen3LayerWeights& w) {
  const std::string prefix = LayerPrefix(layer);
  const std::string attention = prefix + "self_attn.";
  const ModelSpec& spec = part.whole;
  const int64_t hidden = spec.hidden_size;
  ASSIGN_OR_RETURN(w.input_norm, reader.Read(prefix + "input_layernorm.weight", {hidden}));
  ASSIGN_OR_RETURN(w.q_norm, reader.Read(attention + "q_norm.weight", {spec.head_dim}));
  ASSIGN_OR_RETURN(w.k_norm, reader.Read(attention + "k_norm.weight", {spec.head_dim}));
  if (spec.attention_bias) {
    ASSIGN_OR_RETURN(w.qkv_bias, reader.ReadBias(matrices.qkv));
    ASSIGN_OR_RETURN(w.o_bias, reader.Read(attention + "o_proj.bias", {hidden}));
  }
  ASSIGN_OR_RETURN(w.post_norm, reader.Read(prefix + "post_attention_layernorm.weight", {hidden}));
  return absl::OkStatus();
}

absl::StatusOr<Qwen3LayerWeights> ReadLayer(const ModelPart& part, int64_t layer, Reader& reader) {
  const LayerMatrices matrices = MatricesOf(part, layer);
  Qwen3LayerWeights w;
  ASSIGN_OR_RETURN(w.qkv, reader.Read(matrices.qkv));
  ASSIGN_OR_RETURN(w.o, reader.Read(matrices.o));
  ASSIGN_OR_RETURN(w.gate_up, reader.Read(matrices.gate_up));
  ASSIGN_OR_RETURN(w.down, reader.Read(matrices.down));
  RETURN_IF_ERROR(ReadVectors(part, layer, matrices, reader, w));
  return w;
}

// Of which this rank keeps its share.
absl::StatusOr<Qwen3LayerWeights> ReadLayerInto(GatheredBlocks& blocks, const ModelPart& part,
                                                int64_t layer, Reader& reader) {
  const LayerMatrices matrices = MatricesOf(part, layer);
  at::Tensor block = blocks.Buffer(layer);
  block.zero_();
  Qwen3LayerWeights w;
  ASSIGN_OR_RETURN(w.qkv, reader.Read(matrices.qkv, block));
  ASSIGN_OR_RETURN(w.o, reader.Read(matrices.o, block));
  ASSIGN_OR_RETURN(w.gate_up, reader.Read(matrices.gate_up, block));
  ASSIGN_OR_RETURN(w.down, reader.Read(matrices.down, block));
  blocks.Keep(layer);
  RETURN_IF_ERROR(ReadVectors(part, layer, matrices, reader, w));
  return w;
}

// Room for the layers; tensors may be of other dtypes in one layer than in another.
std::unique_ptr<GatheredBlocks> MakeBlocks(const ModelPart& part, const Reader& reader,
                                           at::Device device, const RankGroup& fsdp) {
  int64_t block_bytes = 0;
  for (int64_t layer = 0; layer < part.whole.num_layers; ++layer) {
    block_bytes = std::max(block_bytes, reader.BlockBytes(MatricesOf(part, layer)));
  }
  return std::make_unique<GatheredBlocks>(part.whole.num_layers, block_bytes, device, fsdp);
}

}  // namespace

absl::StatusOr<Qwen3Weights> ReadQwen3Weights(const ModelPart& part, HfTensors& tensors,
                                              at::Device device, const RankGroup& fsdp) {
  const ModelSpec& spec = part.whole;
  Reader reader(tensors, device);
  Qwen3Weights weights;
  if (!fsdp.is_alone()) weights.blocks = MakeBlocks(part, reader, device, fsdp);
  ASSIGN_OR_RETURN(weights.embedding, reader.Read(RowsOfTokens("model.embed_tokens", part)));
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
    ASSIGN_OR_RETURN(Qwen3LayerWeights layer_weights,
                     weights.blocks == nullptr
                         ? ReadLayer(part, layer, reader)
                         : ReadLayerInto(*weights.blocks, part, layer, reader));
    weights.layers.push_back(std::move(layer_weights));
  }
  ASSIGN_OR_RETURN(weights.final_norm, reader.Read("model.norm.weight", {spec.hidden_size}));
  if (spec.tie_word_embeddings) {
    weights.lm_head = weights.embedding;
    tensors.Ignore("lm_head.weight");  // some folders hold the tied matrix twice
  } else {
    ASSIGN_OR_RETURN(weights.lm_head, reader.Read(RowsOfTokens("lm_head", part)));
  }
  if (const auto rest = tensors.Remaining(); !rest.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("tensor ", rest.front(), " is not understood"));
  }
  return weights;
}

}  // namespace lathe::worker
