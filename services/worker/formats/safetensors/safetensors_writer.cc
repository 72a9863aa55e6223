#include "services/worker/formats/safetensors/safetensors_writer.h"

#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "libs/common/status_macros.h"
#include "services/worker/formats/safetensors/durable_file.h"
#include "services/worker/formats/safetensors/safetensors.h"

namespace lathe::worker {
namespace {

// Small enough that two checksums and a write use it from a cache.
constexpr int64_t kPieceBytes = int64_t{256} << 10;

// Copies rows [begin, end) of the transpose of `from` [columns, rows], row-major, to `into`.
void CopyTransposed(const float* from, int64_t rows, int64_t columns, int64_t begin, int64_t end,
                    float* into) {
  for (int64_t column = 0; column < columns; ++column) {
    for (int64_t row = begin; row < end; ++row) {
      into[(row - begin) * columns + column] = from[column * rows + row];
    }
  }
}

// Calls take(data, num_bytes) for the bytes of `tensor` in row-major order. Transposes factors
// here, because torch's operations would start threads beside the executor's.
template <typename Take>
absl::Status ForPieces(const at::Tensor& tensor, const Take& take) {
  const bool is_transposed = tensor.is_cpu() && tensor.scalar_type() == at::kFloat &&
                             tensor.dim() == 2 && !tensor.is_contiguous() &&
                             tensor.t().is_contiguous();
  if (is_transposed) {
    const int64_t rows = tensor.size(0);
    const int64_t columns = tensor.size(1);
    const auto row_bytes = columns * static_cast<int64_t>(sizeof(float));
    const int64_t rows_per_piece = std::max<int64_t>(1, kPieceBytes / row_bytes);
    std::vector<float> piece(std::min(rows, rows_per_piece) * columns);
    for (int64_t begin = 0; begin < rows; begin += rows_per_piece) {
      const int64_t end = std::min(rows, begin + rows_per_piece);
      CopyTransposed(tensor.const_data_ptr<float>(), rows, columns, begin, end, piece.data());
      RETURN_IF_ERROR(take(piece.data(), (end - begin) * row_bytes));
    }
    return absl::OkStatus();
  }
  const at::Tensor bytes = tensor.to(at::kCPU).contiguous();
  const auto* const data = static_cast<const char*>(bytes.const_data_ptr());
  const auto num_bytes = static_cast<int64_t>(bytes.nbytes());
  for (int64_t begin = 0; begin < num_bytes; begin += kPieceBytes) {
    RETURN_IF_ERROR(take(data + begin, std::min(kPieceBytes, num_bytes - begin)));
  }
  return absl::OkStatus();
}

// Returns the header's text, padded with spaces so that the data begins at a multiple of eight.
absl::StatusOr<std::string> MakeHeader(const std::filesystem::path& path,
                                       const std::vector<NamedTensor>& tensors,
                                       const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  int64_t offset = 0;
  for (const NamedTensor& named : tensors) {
    const std::string dtype = SafetensorsDtypeName(named.tensor.scalar_type());
    if (dtype.empty() || header.contains(named.name)) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: tensor %s: %s", path.string(), named.name,
                          dtype.empty() ? "dtype has no safetensors name" : "duplicate name"));
    }
    const int64_t end = offset + static_cast<int64_t>(named.tensor.nbytes());
    header[named.name] = {
        {"dtype", dtype}, {"shape", named.tensor.sizes().vec()}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

}  // namespace

absl::StatusOr<SafetensorsDigest> WriteSafetensors(
    const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
    const std::map<std::string, std::string>& metadata,
    const std::vector<AgeRecipient>& recipients) {
  ASSIGN_OR_RETURN(const std::string header, MakeHeader(path, tensors, metadata));
  ASSIGN_OR_RETURN(DurableFile file, DurableFile::Create(path, recipients));
  std::array<unsigned char, 8> prefix;
  for (size_t i = 0; i < 8; ++i) prefix[i] = static_cast<unsigned char>(header.size() >> (8 * i));
  RETURN_IF_ERROR(file.Append(prefix.data(), prefix.size()));
  RETURN_IF_ERROR(file.Append(header.data(), header.size()));
  SafetensorsDigest digest;
  for (const NamedTensor& named : tensors) {
    Sha256 hash;
    RETURN_IF_ERROR(ForPieces(named.tensor, [&](const void* data, int64_t num_bytes) {
      if (recipients.empty()) hash.Update(data, num_bytes);
      return file.Append(data, num_bytes);
    }));
    if (recipients.empty()) digest.tensors.push_back(hash.HexDigest());
  }
  ASSIGN_OR_RETURN(static_cast<FileDigest&>(digest), file.Finish());
  return digest;
}

}  // namespace lathe::worker
