#include "services/worker/models/decoder_weights.h"

#include <algorithm>
#include <atomic>
#include <span>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>

#include "libs/common/logging/logging.h"
#include "libs/common/status_macros.h"
#include "services/worker/layers/cpu_rows.h"

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

// Returns the matrix of linears that have the same inputs and are cut alike.
Matrix MatrixOf(const ModelPart& part, std::span<const LinearSpec> linears) {
  Matrix matrix;
  for (const LinearSpec& linear : linears) {
    const LinearSide in = InputsOf(part, linear);
    const LinearSide out = OutputsOf(part, linear);
    matrix.dim = linear.cut == TpCut::kColumns ? 1 : 0;
    const LinearSide& cut = matrix.dim == 1 ? in : out;
    matrix.parts.push_back({linear.source, cut.whole_features, cut.features});
    matrix.other_size = matrix.dim == 1 ? linear.out_features : linear.in_features;
  }
  return matrix;
}

std::span<const LinearSpec> LinearsOf(const LinearTable& table, const LinearStack& stack) {
  return std::span(table.rows).subspan(stack.first, stack.count);
}

// Returns true if fp16 matrices become bf16 on `device`. In fp32 they would take twice the memory,
// and a GPU multiplies fp32 more than ten times slower. A CPU widens them, which keeps every bit.
bool KeepsHalfAsBf16(at::Device device) { return !device.is_cpu(); }

class Reader {
 public:
  Reader(HfTensors& tensors, at::Device device)
      : tensors_(tensors), options_(at::TensorOptions().dtype(at::kFloat).device(device)) {}

  // Reads a vector as fp32.
  absl::StatusOr<at::Tensor> Read(const VectorSpec& vector) {
    at::Tensor out = at::empty({vector.size}, options_);
    RETURN_IF_ERROR(tensors_.ReadInto(vector.source, out));
    return out;
  }

  absl::StatusOr<BaseWeight> Read(const Matrix& matrix) {
    BaseWeight out(matrix.n(), matrix.k(), DtypeOf(matrix), options_.device());
    RETURN_IF_ERROR(Fill(matrix, out));
    return out;
  }

  // Reads every matrix, on all threads. Digests and copies take longer than reading a cached file.
  absl::StatusOr<std::vector<BaseWeight>> ReadEach(const std::vector<Matrix>& matrices) {
    const auto num_matrices = static_cast<int64_t>(matrices.size());
    std::vector<BaseWeight> weights(num_matrices);
    std::vector<absl::Status> statuses(num_matrices);
    std::atomic<bool> has_failed = false;
    // Stacked tensors are one task, because they may share a panel.
    ComputeTeam().Run(num_matrices, [&](int64_t i, int64_t /*thread*/) {
      if (has_failed) return;
      absl::StatusOr<BaseWeight> weight = Read(matrices[i]);
      statuses[i] = weight.status();
      if (weight.ok()) {
        weights[i] = *std::move(weight);
      } else {
        has_failed = true;
      }
    });
    for (absl::Status& status : statuses) RETURN_IF_ERROR(std::move(status));
    return weights;
  }

  // Reads this rank's share of FSDP unit `unit` and keeps it. The unit holds the matrices of
  // `list` one after the other.
  absl::Status ReadUnit(const std::vector<std::pair<const Matrix*, BaseWeight*>>& list,
                        int64_t unit, FsdpUnits& units) {
    const Shard& own = units.own(unit);
    const at::Tensor memory = units.Buffer(unit);
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
    units.Reshard(unit);
    return absl::OkStatus();
  }

  // Returns the bytes that a matrix takes in an FSDP unit.
  int64_t UnitBytes(const Matrix& matrix) const { return Aligned(NumBytes(matrix)); }

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
                                                     int64_t first_unit, FsdpUnits& units) {
    const at::ScalarType dtype = DtypeOf(matrix);
    std::vector<BaseWeight> pieces;
    int64_t row = 0;
    for (const int64_t num_rows : piece_rows) {
      const auto unit = first_unit + static_cast<int64_t>(pieces.size());
      const Shard& own = units.own(unit);
      const at::Tensor memory = units.Buffer(unit);
      memory.narrow(0, own.begin, own.size).zero_();
      pieces.emplace_back(num_rows, matrix.k(), dtype, memory);
      RETURN_IF_ERROR(FillRows(matrix, row, /*begin=*/0, own, pieces.back()));
      units.Reshard(unit);
      row += num_rows;
    }
    tensors_.EndRows(matrix.parts.at(0).name + ".weight");
    return pieces;
  }

  // Reads the biases of stacked linears. Undefined if the first has none.
  absl::StatusOr<at::Tensor> ReadBias(const ModelPart& part, std::span<const LinearSpec> linears) {
    if (!linears.front().has_bias) return at::Tensor();
    std::vector<at::Tensor> biases;
    for (const LinearSpec& linear : linears) {
      const LinearSide out = OutputsOf(part, linear);
      ASSIGN_OR_RETURN(const at::Tensor bias,
                       tensors_.ReadPart(linear.source + ".bias", {out.whole_features},
                                         /*dim=*/0, out.features));
      biases.push_back(bias.to(options_));
    }
    return at::cat(biases);
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
      RETURN_IF_ERROR(tensors_.StreamPart(
          part.name + ".weight", ShapeOf(matrix, part), matrix.dim, part.shard,
          [&](int64_t first, const at::Tensor& rows) { out.SetRows(row + first, rows); }));
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

  // Returns the dtype of a matrix made of these parts: bf16 if all of them become bf16, otherwise
  // fp32.
  at::ScalarType DtypeOf(const Matrix& matrix) const {
    const auto& parts = matrix.parts;
    const bool is_bf16 = std::all_of(parts.begin(), parts.end(), [this](const Part& part) {
      const auto dtype = tensors_.DtypeOf(part.name + ".weight");
      return dtype == at::kBFloat16 || (dtype == at::kHalf && KeepsHalfAsBf16(options_.device()));
    });
    return is_bf16 ? at::kBFloat16 : at::kFloat;
  }

  HfTensors& tensors_;
  at::TensorOptions options_;
};

// Reads norms and biases. With FSDP every rank has all of them.
absl::Status ReadVectors(const ModelPart& part, Reader& reader, DecoderWeights& weights) {
  const LinearTable& linears = *part.whole.linears;
  for (const LinearStack& stack : linears.stacks) {
    ASSIGN_OR_RETURN(at::Tensor bias, reader.ReadBias(part, LinearsOf(linears, stack)));
    weights.biases.push_back(std::move(bias));
  }
  for (const VectorSpec& vector : part.whole.vectors->rows) {
    ASSIGN_OR_RETURN(at::Tensor read, reader.Read(vector));
    if (part.whole.norm_offset != 0) read.add_(part.whole.norm_offset);
    weights.vectors.push_back(std::move(read));
  }
  return absl::OkStatus();
}

// The matrices of the layers, by stack.
std::vector<Matrix> StackedMatrices(const ModelPart& part) {
  const LinearTable& linears = *part.whole.linears;
  std::vector<Matrix> matrices;
  for (const LinearStack& stack : linears.stacks) {
    matrices.push_back(MatrixOf(part, LinearsOf(linears, stack)));
  }
  return matrices;
}

Matrix EmbeddingOf(const ModelPart& part) {
  return MatrixOf(part, {&part.whole.linears->embedding, 1});
}

Matrix HeadOf(const ModelPart& part) {
  const LinearTable& linears = *part.whole.linears;
  return MatrixOf(part, {&linears.rows[linears.lm_head], 1});
}

// The FSDP units of a model: the layers', then pieces of the embedding and, if not tied, of the
// head. No piece is larger than the largest unit of a layer, if a panel fits.
struct UnitPlan {
  std::vector<int64_t> unit_bytes;
  std::vector<int64_t> embedding_pieces;  // rows
  std::vector<int64_t> lm_head_pieces;
  int64_t first_of_embedding = 0;
  int64_t first_of_lm_head = 0;
};

UnitPlan PlanUnits(const ModelPart& part, const std::vector<Matrix>& matrices,
                   const Reader& reader) {
  const std::vector<LinearStack>& stacks = part.whole.linears->stacks;
  UnitPlan plan;
  plan.unit_bytes.resize(stacks.empty() ? 0 : stacks.back().unit + 1);
  // The dtype of tensors may differ between layers.
  for (size_t i = 0; i < stacks.size(); ++i) {
    plan.unit_bytes[stacks[i].unit] += reader.UnitBytes(matrices[i]);
  }
  const int64_t most = *std::max_element(plan.unit_bytes.begin(), plan.unit_bytes.end());
  const auto add_pieces = [&](const Matrix& matrix) {
    std::vector<int64_t> pieces = reader.PieceRows(matrix, most);
    for (const int64_t num_rows : pieces) {
      plan.unit_bytes.push_back(reader.PieceBytes(matrix, num_rows));
    }
    return pieces;
  };
  plan.first_of_embedding = plan.first_of_lm_head = static_cast<int64_t>(plan.unit_bytes.size());
  plan.embedding_pieces = add_pieces(EmbeddingOf(part));
  if (!part.whole.tie_word_embeddings) {
    plan.first_of_lm_head = static_cast<int64_t>(plan.unit_bytes.size());
    plan.lm_head_pieces = add_pieces(HeadOf(part));
  }
  return plan;
}

absl::Status ReadLayersShared(const ModelPart& part, const std::vector<Matrix>& matrices,
                              FsdpUnits& units, Reader& reader, DecoderWeights& weights) {
  const std::vector<LinearStack>& stacks = part.whole.linears->stacks;
  weights.stacks.resize(stacks.size());
  for (size_t i = 0; i < stacks.size();) {
    const int64_t unit = stacks[i].unit;
    std::vector<std::pair<const Matrix*, BaseWeight*>> list;
    for (; i < stacks.size() && stacks[i].unit == unit; ++i) {
      list.emplace_back(&matrices[i], &weights.stacks[i]);
    }
    RETURN_IF_ERROR(reader.ReadUnit(list, unit, units));
  }
  return absl::OkStatus();
}

// Reads all matrices of a model as FSDP units.
absl::Status ReadShared(const ModelPart& part, const RankGroup& fsdp, at::Device device,
                        Reader& reader, DecoderWeights& weights) {
  const std::vector<Matrix> matrices = StackedMatrices(part);
  const UnitPlan plan = PlanUnits(part, matrices, reader);
  FsdpShares& shared =
      weights.shared.emplace(FsdpShares{std::make_unique<FsdpUnits>(plan.unit_bytes, device, fsdp),
                                        plan.first_of_embedding, plan.first_of_lm_head});
  ASSIGN_OR_RETURN(weights.embedding, reader.ReadPieces(EmbeddingOf(part), plan.embedding_pieces,
                                                        shared.first_of_embedding, *shared.units));
  RETURN_IF_ERROR(ReadLayersShared(part, matrices, *shared.units, reader, weights));
  if (part.whole.tie_word_embeddings) {
    weights.lm_head = weights.embedding;
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(weights.lm_head, reader.ReadPieces(HeadOf(part), plan.lm_head_pieces,
                                                      shared.first_of_lm_head, *shared.units));
  return absl::OkStatus();
}

absl::Status ReadWhole(const ModelPart& part, Reader& reader, DecoderWeights& weights) {
  // The largest matrices come first: threads end together only if the last ones are small.
  std::vector<Matrix> matrices = {EmbeddingOf(part)};
  if (!part.whole.tie_word_embeddings) matrices.push_back(HeadOf(part));
  const auto num_large = static_cast<int64_t>(matrices.size());
  for (Matrix& matrix : StackedMatrices(part)) matrices.push_back(std::move(matrix));
  ASSIGN_OR_RETURN(weights.stacks, reader.ReadEach(matrices));
  weights.embedding = {weights.stacks.front()};
  weights.lm_head = {weights.stacks[num_large - 1]};  // that of the embedding if tied
  weights.stacks.erase(weights.stacks.begin(), weights.stacks.begin() + num_large);
  return absl::OkStatus();
}

// Checks that every tensor of the folder was read.
absl::Status CheckNoneRemains(const DecoderSpec& spec, HfTensors& tensors) {
  const LinearTable& linears = *spec.linears;
  // Some folders contain the tied matrix twice.
  if (spec.tie_word_embeddings) tensors.Ignore(linears.rows[linears.lm_head].source + ".weight");
  // Some folders contain what rope computes from the config.
  for (int64_t layer = 0; layer < spec.num_layers(); ++layer) {
    tensors.Ignore(absl::StrCat("model.layers.", layer, ".self_attn.rotary_emb.inv_freq"));
  }
  const std::vector<std::string> rest = tensors.Remaining();
  if (rest.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("tensor ", rest.front(), " is not understood"));
}

}  // namespace

absl::StatusOr<DecoderWeights> ReadDecoderWeights(const ModelPart& part, HfTensors& tensors,
                                                  at::Device device, const RankGroup& fsdp) {
  const std::string& embedding = part.whole.linears->embedding.source;
  if (KeepsHalfAsBf16(device) && tensors.DtypeOf(embedding + ".weight") == at::kHalf) {
    LogInfo("fp16 weights become bf16 on a GPU, with 8 bits of precision instead of 11");
  }
  Reader reader(tensors, device);
  DecoderWeights weights;
  RETURN_IF_ERROR(fsdp.is_alone() ? ReadWhole(part, reader, weights)
                                  : ReadShared(part, fsdp, device, reader, weights));
  RETURN_IF_ERROR(ReadVectors(part, reader, weights));
  RETURN_IF_ERROR(CheckNoneRemains(part.whole, tensors));
  return weights;
}

absl::Status VisitTensors(const DecoderSpec& spec, HfTensors& tensors) {
  const auto visit = [&](const LinearSpec& linear) -> absl::Status {
    RETURN_IF_ERROR(
        tensors.Read(linear.source + ".weight", {linear.out_features, linear.in_features})
            .status());
    if (!linear.has_bias) return absl::OkStatus();
    return tensors.Read(linear.source + ".bias", {linear.out_features}).status();
  };
  const LinearTable& linears = *spec.linears;
  RETURN_IF_ERROR(visit(linears.embedding));
  for (int64_t row = 0; row < static_cast<int64_t>(linears.rows.size()); ++row) {
    if (row == linears.lm_head && spec.tie_word_embeddings) continue;
    RETURN_IF_ERROR(visit(linears.rows[row]));
  }
  for (const VectorSpec& vector : spec.vectors->rows) {
    RETURN_IF_ERROR(tensors.Read(vector.source, {vector.size}).status());
  }
  return CheckNoneRemains(spec, tensors);
}

}  // namespace lathe::worker
