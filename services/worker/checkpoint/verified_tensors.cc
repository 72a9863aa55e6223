#include "services/worker/checkpoint/verified_tensors.h"

#include <algorithm>
#include <set>
#include <system_error>
#include <vector>

#include <c10/core/InferenceMode.h>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "libs/common/concurrency/thread_team.h"
#include "libs/common/status_macros.h"
#include "services/worker/formats/safetensors/read_error.h"
#include "services/worker/formats/safetensors/safetensors.h"
#include "services/worker/formats/safetensors/sha256.h"

namespace lathe::worker {
namespace {

// About half of the time is checksums; OpenSSL uses one thread for each.
constexpr int64_t kNumReaders = 2;

// Tensors of one file, by name.
using Wanted = std::map<std::string, const ManifestTensor*>;

absl::Status Damaged(const std::filesystem::path& file, const std::string& what) {
  return absl::DataLossError(absl::StrFormat("%s: %s", file.string(), what));
}

absl::Status CheckSize(const std::filesystem::path& path, int64_t wanted) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (error == std::errc::no_such_file_or_directory) return Damaged(path, error.message());
  if (error) return ReadError(path, "stat", error.value());
  if (static_cast<int64_t>(size) == wanted) return absl::OkStatus();
  return Damaged(path, absl::StrFormat("size is %d bytes, manifest says %d", size, wanted));
}

absl::Status CheckEntry(const SafetensorsFile& file, const ManifestTensor& wanted) {
  const SafetensorsFile::Entry* entry = file.Find(wanted.name);
  if (entry == nullptr) {
    return Damaged(file.path(), absl::StrFormat("tensor %s is missing", wanted.name));
  }
  const std::string dtype = SafetensorsDtypeName(entry->dtype);
  if (dtype == wanted.dtype && entry->shape == wanted.shape) return absl::OkStatus();
  return Damaged(file.path(), absl::StrFormat("tensor %s is %s [%s], manifest says %s [%s]",
                                              wanted.name, dtype, absl::StrJoin(entry->shape, ","),
                                              wanted.dtype, absl::StrJoin(wanted.shape, ",")));
}

// Transposes `from` [rows, columns] into `into` [columns, rows]; the strides are between rows. One
// dimension is small and the other large, so it writes `into` in pieces of a cache line.
void CopyTransposed(const float* from, int64_t from_stride, int64_t rows, int64_t columns,
                    float* into, int64_t into_stride) {
  constexpr int64_t kStretch = 16;
  for (int64_t begin = 0; begin < rows; begin += kStretch) {
    const int64_t end = std::min(rows, begin + kStretch);
    for (int64_t column = 0; column < columns; ++column) {
      for (int64_t row = begin; row < end; ++row) {
        into[column * into_stride + row] = from[row * from_stride + column];
      }
    }
  }
}

// Copies a tensor. For this worker's own checkpoints it avoids torch's operations, which would
// start threads beside the executor's.
void CopyTensor(const SafetensorsFile::Entry& entry, void* data, const TensorPlace& place) {
  const at::Tensor& into = place.into;
  const bool is_plain =
      entry.dtype == at::kFloat && into.scalar_type() == at::kFloat && into.dim() == 2;
  if (is_plain && (into.stride(0) == 1 || into.stride(1) == 1)) {
    const int64_t stride = entry.shape[1];
    const auto* const from =
        static_cast<const float*>(data) + place.begin * (place.dim == 0 ? stride : 1);
    auto* const to = into.mutable_data_ptr<float>();
    if (into.stride(1) != 1) {
      CopyTransposed(from, stride, into.size(0), into.size(1), to, into.stride(1));
      return;
    }
    for (int64_t row = 0; row < into.size(0); ++row) {
      std::copy_n(from + row * stride, into.size(1), to + row * into.stride(0));
    }
  } else {
    into.copy_(at::from_blob(data, entry.shape, at::TensorOptions().dtype(entry.dtype))
                   .narrow(place.dim, place.begin, into.size(place.dim)));
  }
}

std::string DigestOf(const SafetensorsFile::Bytes& tensor) {
  Sha256 hash;
  hash.Update(tensor.data, tensor.entry.num_bytes);
  return hash.HexDigest();
}

// Reads one safetensors file; adds the tensors of `places` in it to `found`.
absl::Status ReadTensors(const std::filesystem::path& dir, const std::string& file_name,
                         const Wanted& listed, const TensorPlaces& places, ThreadTeam& team,
                         std::set<TensorPlaces::key_type>& found) {
  const auto opened = SafetensorsFile::Open(dir / file_name);
  if (IsReadError(opened.status())) return opened.status();
  if (!opened.ok()) return absl::DataLossError(opened.status().message());
  for (const auto& [name, wanted] : listed) RETURN_IF_ERROR(CheckEntry(*opened, *wanted));
  const bool is_inference = c10::InferenceMode::is_enabled();
  absl::Mutex mu;  // guards `found`
  return opened->ReadAll(team, [&](const SafetensorsFile::Bytes& tensor) {
    const auto wanted = listed.find(tensor.name);
    if (wanted == listed.end()) return absl::OkStatus();
    if (DigestOf(tensor) != wanted->second->sha256) {
      return Damaged(opened->path(), absl::StrFormat("tensor %s: checksum mismatch", tensor.name));
    }
    const auto place = places.find({file_name, tensor.name});
    if (place == places.end() || place->second.whole_shape() != tensor.entry.shape) {
      return absl::OkStatus();
    }
    const c10::InferenceMode as_the_caller(is_inference);
    CopyTensor(tensor.entry, tensor.data, place->second);
    const absl::MutexLock lock(&mu);
    found.insert(place->first);
    return absl::OkStatus();
  });
}

bool HasWanted(const TensorPlaces& places, const std::string& file_name) {
  const auto it = places.lower_bound({file_name, ""});
  return it != places.end() && it->first.first == file_name;
}

}  // namespace

absl::Status ReadVerifiedTensors(const std::filesystem::path& dir, const Manifest& manifest,
                                 Verify verify, const TensorPlaces& places) {
  std::map<std::string, Wanted> tensors;  // by file
  for (const ManifestTensor& tensor : manifest.tensors) tensors[tensor.file][tensor.name] = &tensor;
  for (const ManifestFile& file : manifest.files) {
    RETURN_IF_ERROR(CheckSize(dir / file.name, file.size_bytes));
  }
  ThreadTeam team(kNumReaders);
  std::set<TensorPlaces::key_type> found;
  for (const auto& [file_name, listed] : tensors) {
    if (verify == Verify::kTensors && !HasWanted(places, file_name)) continue;
    RETURN_IF_ERROR(ReadTensors(dir, file_name, listed, places, team, found));
  }
  // Tensors come first, so that a damaged one is named. The files' checksums find all other damage.
  for (const ManifestFile& file : manifest.files) {
    if (verify == Verify::kTensors && tensors.contains(file.name)) continue;
    ASSIGN_OR_RETURN(const FileDigest digest, DigestFile(dir / file.name));
    if (digest.sha256 != file.sha256) return Damaged(dir / file.name, "checksum mismatch");
  }
  for (const auto& [key, place] : places) {
    if (found.contains(key)) continue;
    return Damaged(dir / key.first, absl::StrFormat("tensor %s is missing or not [%s]", key.second,
                                                    absl::StrJoin(place.whole_shape(), ",")));
  }
  return absl::OkStatus();
}

}  // namespace lathe::worker
