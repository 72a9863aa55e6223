#include "services/worker/models/qwen3/hf_weights.h"

#include <algorithm>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>

#include "libs/common/status_macros.h"

namespace lathe::worker {
namespace {

// Alignment of matrices within an FSDP unit, which kernels require.
constexpr int64_t kAlignment = 64;

// The part `shard` of a folder's tensor with `size` rows or columns.
struct Part {
  std::string name;
  int64_t size = 0;
  Shard shard;
};

// A matrix made of rows of several tensors, stacked, or of columns of one tensor.
struct Matrix {
  std::vector<Part> parts;
  int64_t dim = 0;         // the dimension that the shards cut
  int64_t other_size = 0;  // size of the other dimension

  int64_t CutSize() const {
    int64_t size = 0;
    for (const Part& part : parts) size += part.shard.padded_size();
    return size;
  }
  int64_t n() const { return dim == 0 ? CutSize() : other_size; }
  int64_t k() const { return dim == 0 ? other_size : CutSize(); }
};

struct LayerMatrices {
  Matrix qkv, o, gate_up, down;
};

class Reader {
 public:
  Reader(HfTensors& tensors, at::Device device)
      : tensors_(tensors), options_(at::TensorOptions().dtype(at::kFloat).device(device)) {}

  // Reads a norm as fp32.
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

  // Reads this rank's share of FSDP unit `block` and keeps it. The unit holds the matrices of
  // `list` one after the other.
  absl::Status ReadBlock(const std::vector<std::pair<const Matrix*, BaseWeight*>>& list,
                         int64_t block, FsdpUnits& blocks) {
    const Shard& own = blocks.own(block);
    const at::Tensor memory = blocks.Buffer(block);
    memory.narrow(0, own.begin, own.size).zero_();
    int64_t begin = 0;
    for (const auto& [matrix, out] : list) {
      const int64_t num_bytes = NumBytes(*matrix);
      *out = BaseWeight(matrix->n(), matrix->k(), DtypeOf(*matrix),
                        memory.narrow(0, begin, num_bytes));
      RETURN_IF_ERROR(FillRows(*matrix, /*first=*/0, begin, own, *out));
      for (const Part& part : matrix->parts) tensors_.EndRows(part.name + ".weight");
      begin += Aligned(num_bytes);
    }
    blocks.Reshard(block);
    return absl::OkStatus();
  }

  // Returns the bytes of an FSDP unit with these matrices.
  int64_t BlockBytes(const std::vector<Matrix>& matrices) const {
    int64_t sum = 0;
    for (const Matrix& matrix : matrices) sum += Aligned(NumBytes(matrix));
    return sum;
  }

  // Returns the number of rows of each piece of the matrix. A piece has at most `most` bytes, but
  // at least one panel.
  std::vector<int64_t> PieceRows(const Matrix& matrix, int64_t most) const {
    const int64_t panel_bytes =
        BaseWeight::NumBytes(kMatmulPanel, matrix.k(), DtypeOf(matrix), options_.device());
    const int64_t piece_rows = std::max<int64_t>(1, most / panel_bytes) * kMatmulPanel;
    std::vector<int64_t> pieces;
    for (int64_t row = 0; row < matrix.n(); row += piece_rows) {
      pieces.push_back(std::min(piece_rows, matrix.n() - row));
    }
    return pieces;
  }
  int64_t PieceBytes(const Matrix& matrix, int64_t num_rows) const {
    return BaseWeight::NumBytes(num_rows, matrix.k(), DtypeOf(matrix), options_.device());
  }

  // Reads a tensor in pieces of rows, each an FSDP unit, and keeps this rank's share of each.
  absl::StatusOr<std::vector<BaseWeight>> ReadPieces(const Matrix& matrix,
                                                     const std::vector<int64_t>& piece_rows,
                                                     int64_t first_block, FsdpUnits& blocks) {
    const at::ScalarType dtype = DtypeOf(matrix);
    std::vector<BaseWeight> pieces;
    int64_t row = 0;
    for (const int64_t num_rows : piece_rows) {
      const auto block = first_block + static_cast<int64_t>(pieces.size());
      const Shard& own = blocks.own(block);
      const at::Tensor memory = blocks.Buffer(block);
      memory.narrow(0, own.begin, own.size).zero_();
      pieces.emplace_back(num_rows, matrix.k(), dtype, memory);
      RETURN_IF_ERROR(FillRows(matrix, row, /*begin=*/0, own, pieces.back()));
      blocks.Reshard(block);
      row += num_rows;
    }
    tensors_.EndRows(matrix.parts.at(0).name + ".weight");
    return pieces;
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
      ASSIGN_OR_RETURN(
          const at::Tensor tensor,
          tensors_.ReadPart(part.name + ".weight", ShapeOf(matrix, part), matrix.dim, part.shard));
      out.SetRows(row, tensor);
      row += part.shard.padded_size();
    }
    return absl::OkStatus();
  }

  // Fills the rows of `out` that lie within the bytes `own` of an FSDP unit. `out` is the matrix
  // from row `first` on and starts at byte `begin` of the unit.
  absl::Status FillRows(const Matrix& matrix, int64_t first, int64_t begin, const Shard& own,
                        BaseWeight& out) {
    const auto in_out = [&](int64_t byte) {
      return std::clamp<int64_t>(byte - begin, 0, out.NumBytes());
    };
    const Shard wanted = out.RowsWithin(in_out(own.begin), in_out(own.begin + own.size));
    int64_t row = 0;
    for (const Part& part : matrix.parts) {
      const int64_t num_rows = matrix.dim == 0 ? part.shard.size : matrix.other_size;
      const auto in_part = [&](int64_t row_of_out) {
        return std::clamp<int64_t>(first + row_of_out - row, 0, num_rows);
      };
      Shard rows = {.begin = in_part(wanted.begin)};
      rows.size = in_part(wanted.begin + wanted.size) - rows.begin;
      ASSIGN_OR_RETURN(const at::Tensor tensor,
                       tensors_.ReadRows(part.name + ".weight", ShapeOf(matrix, part), matrix.dim,
                                         part.shard, rows));
      if (rows.size > 0) out.SetRows(row + rows.begin - first, tensor);
      row += part.shard.padded_size();
    }
    return absl::OkStatus();
  }

  static std::vector<int64_t> ShapeOf(const Matrix& matrix, const Part& part) {
    if (matrix.dim == 1) return {matrix.other_size, part.size};
    return {part.size, matrix.other_size};
  }

  // Returns the dtype of a matrix made of these parts: bf16 if all of them are, otherwise fp32.
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

// Reads norms and biases. With FSDP every rank has all of them.
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

// Reads a layer as FSDP units and keeps this rank's share of each.
absl::StatusOr<Qwen3LayerWeights> ReadSharedLayer(const ModelPart& part, int64_t layer,
                                                  FsdpUnits& blocks, Reader& reader) {
  const LayerMatrices matrices = MatricesOf(part, layer);
  Qwen3LayerWeights w;
  const auto block = [&](LayerBlock which) { return Qwen3Blocks::Of(layer, which); };
  RETURN_IF_ERROR(reader.ReadBlock({{&matrices.qkv, &w.qkv}, {&matrices.o, &w.o}},
                                   block(LayerBlock::kAttention), blocks));
  RETURN_IF_ERROR(
      reader.ReadBlock({{&matrices.gate_up, &w.gate_up}}, block(LayerBlock::kGateUp), blocks));
  RETURN_IF_ERROR(reader.ReadBlock({{&matrices.down, &w.down}}, block(LayerBlock::kDown), blocks));
  RETURN_IF_ERROR(ReadVectors(part, layer, matrices, reader, w));
  return w;
}

constexpr char kEmbedding[] = "model.embed_tokens";
constexpr char kLmHead[] = "lm_head";

// Reads all matrices of a model as FSDP units: the layers, then pieces of the embedding and, if not
// tied, of the head. No piece is larger than the largest unit of a layer, if a panel fits.
absl::Status ReadShared(const ModelPart& part, const RankGroup& fsdp, at::Device device,
                        Reader& reader, Qwen3Weights& weights) {
  const ModelSpec& spec = part.whole;
  // The dtype of tensors may differ between layers.
  std::vector<int64_t> block_bytes;
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
    const LayerMatrices m = MatricesOf(part, layer);
    block_bytes.push_back(reader.BlockBytes({m.qkv, m.o}));
    block_bytes.push_back(reader.BlockBytes({m.gate_up}));
    block_bytes.push_back(reader.BlockBytes({m.down}));
  }
  const int64_t most = *std::max_element(block_bytes.begin(), block_bytes.end());
  const auto add_pieces = [&](const Matrix& matrix) {
    std::vector<int64_t> pieces = reader.PieceRows(matrix, most);
    for (const int64_t num_rows : pieces) {
      block_bytes.push_back(reader.PieceBytes(matrix, num_rows));
    }
    return pieces;
  };
  Qwen3Blocks& shared = weights.shared.emplace();
  const Matrix embedding = RowsOfTokens(kEmbedding, part);
  const Matrix lm_head = RowsOfTokens(kLmHead, part);
  shared.first_of_embedding = shared.first_of_lm_head = static_cast<int64_t>(block_bytes.size());
  const std::vector<int64_t> embedding_pieces = add_pieces(embedding);
  std::vector<int64_t> lm_head_pieces;
  if (!spec.tie_word_embeddings) {
    shared.first_of_lm_head = static_cast<int64_t>(block_bytes.size());
    lm_head_pieces = add_pieces(lm_head);
  }
  shared.blocks = std::make_unique<FsdpUnits>(block_bytes, device, fsdp);

  ASSIGN_OR_RETURN(weights.embedding, reader.ReadPieces(embedding, embedding_pieces,
                                                        shared.first_of_embedding, *shared.blocks));
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
    ASSIGN_OR_RETURN(Qwen3LayerWeights layer_weights,
                     ReadSharedLayer(part, layer, *shared.blocks, reader));
    weights.layers.push_back(std::move(layer_weights));
  }
  if (spec.tie_word_embeddings) {
    weights.lm_head = weights.embedding;
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(weights.lm_head, reader.ReadPieces(lm_head, lm_head_pieces,
                                                      shared.first_of_lm_head, *shared.blocks));
  return absl::OkStatus();
}

absl::Status ReadWhole(const ModelPart& part, Reader& reader, Qwen3Weights& weights) {
  ASSIGN_OR_RETURN(BaseWeight embedding, reader.Read(RowsOfTokens(kEmbedding, part)));
  weights.embedding = {std::move(embedding)};
  for (int64_t layer = 0; layer < part.whole.num_layers; ++layer) {
    ASSIGN_OR_RETURN(Qwen3LayerWeights layer_weights, ReadLayer(part, layer, reader));
    weights.layers.push_back(std::move(layer_weights));
  }
  if (part.whole.tie_word_embeddings) {
    weights.lm_head = weights.embedding;
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(BaseWeight lm_head, reader.Read(RowsOfTokens(kLmHead, part)));
  weights.lm_head = {std::move(lm_head)};
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Qwen3Weights> ReadQwen3Weights(const ModelPart& part, HfTensors& tensors,
                                              at::Device device, const RankGroup& fsdp) {
  Reader reader(tensors, device);
  Qwen3Weights weights;
  RETURN_IF_ERROR(fsdp.is_alone() ? ReadWhole(part, reader, weights)
                                  : ReadShared(part, fsdp, device, reader, weights));
  ASSIGN_OR_RETURN(weights.final_norm, reader.Read("model.norm.weight", {part.whole.hidden_size}));
  // Some folders contain the tied matrix twice.
  if (part.whole.tie_word_embeddings) tensors.Ignore("lm_head.weight");
  if (const auto rest = tensors.Remaining(); !rest.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("tensor ", rest.front(), " is not understood"));
  }
  return weights;
}

}  // namespace lathe::worker
