#include "services/worker/checkpoint/safetensors_writer.h"

#include <array>

#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "libs/common/status_macros.h"
#include "services/worker/checkpoint/durable_file.h"
#include "services/worker/checkpoint/safetensors.h"

namespace lathe::worker {
namespace {

// Header text, padded with spaces so that the data begins at a multiple of eight.
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

absl::StatusOr<FileDigest> WriteSafetensors(const std::filesystem::path& path,
                                            const std::vector<NamedTensor>& tensors,
                                            const std::map<std::string, std::string>& metadata,
                                            const std::vector<AgeRecipient>& recipients) {
  ASSIGN_OR_RETURN(const std::string header, MakeHeader(path, tensors, metadata));
  ASSIGN_OR_RETURN(DurableFile file, DurableFile::Create(path, recipients));
  std::array<unsigned char, 8> prefix;
  for (size_t i = 0; i < 8; ++i) prefix[i] = static_cast<unsigned char>(header.size() >> (8 * i));
  RETURN_IF_ERROR(file.Append(prefix.data(), prefix.size()));
  RETURN_IF_ERROR(file.Append(header.data(), header.size()));
  for (const NamedTensor& named : tensors) {
    const at::Tensor bytes = named.tensor.to(at::kCPU).contiguous();
    RETURN_IF_ERROR(file.Append(bytes.data_ptr(), bytes.nbytes()));
  }
  return file.Finish();
}

}  // namespace lathe::worker
