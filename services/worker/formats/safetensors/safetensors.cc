#include "services/worker/formats/safetensors/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "libs/common/status_macros.h"
#include "services/worker/formats/safetensors/read_error.h"

namespace lathe::worker {
namespace {

using nlohmann::json;
using Entry = SafetensorsFile::Entry;

constexpr int64_t kMaxHeaderBytes = 100'000'000;  // the reference implementation's limit
// Bytes of tensors that are read together: small enough to be hashed and copied from a core's
// cache.
constexpr int64_t kGroupBytes = int64_t{512} << 10;
// Bytes per read in Stream.
constexpr int64_t kStreamBytes = int64_t{4} << 20;
constexpr int kMaxHeaderDepth = 8;  // a valid header has 3; printing recurses

struct DtypeName {
  const char* name;
  at::ScalarType dtype;
};
constexpr std::array<DtypeName, 10> kDtypes = {{{"F64", at::kDouble},
                                                {"F32", at::kFloat},
                                                {"F16", at::kHalf},
                                                {"BF16", at::kBFloat16},
                                                {"I64", at::kLong},
                                                {"I32", at::kInt},
                                                {"I16", at::kShort},
                                                {"I8", at::kChar},
                                                {"U8", at::kByte},
                                                {"BOOL", at::kBool}}};

absl::Status FileError(const std::filesystem::path& path, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrFormat("%s: %s", path.string(), what));
}

// Reads exactly `num_bytes`. Returns false on error or end of file; errno is 0 at the end of the
// file.
bool ReadAt(int fd, int64_t offset, void* data, int64_t num_bytes) {
  constexpr int64_t kMaxReadBytes = int64_t{1} << 30;
  char* next = static_cast<char*>(data);
  while (num_bytes > 0) {
    const ssize_t got = pread(fd, next, std::min(num_bytes, kMaxReadBytes), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) errno = 0;  // end of file
    if (got <= 0) return false;
    next += got;
    offset += got;
    num_bytes -= got;
  }
  return true;
}

// Parses a header. The JSON library keeps the last of two equal keys; here they are an error.
absl::StatusOr<json> ParseHeader(const std::filesystem::path& path, const std::string& text) {
  std::vector<std::set<std::string>> keys;
  std::optional<std::string> duplicate;
  bool is_too_deep = false;
  auto on_event = [&](int depth, json::parse_event_t event, json& parsed) {
    is_too_deep = is_too_deep || depth > kMaxHeaderDepth;
    if (is_too_deep) return false;
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key &&
        !keys.back().insert(parsed.get<std::string>()).second) {
      duplicate = parsed.get<std::string>();
    }
    return true;
  };
  json header = json::parse(text, on_event, /*allow_exceptions=*/false);
  if (is_too_deep) {
    return FileError(path, absl::StrFormat("header is nested deeper than %d", kMaxHeaderDepth));
  }
  if (header.is_discarded() || !header.is_object()) {
    return FileError(path, "header is not a JSON object");
  }
  if (duplicate) return FileError(path, absl::StrFormat("duplicate name %s", *duplicate));
  return header;
}

absl::StatusOr<std::string> ReadHeaderText(const std::filesystem::path& path, int fd,
                                           int64_t file_bytes) {
  std::array<unsigned char, 8> prefix;
  if (file_bytes < 8 || !ReadAt(fd, 0, prefix.data(), 8)) {
    return FileError(
        path, absl::StrFormat("file has %d bytes, 8 are needed for the header length", file_bytes));
  }
  uint64_t header_bytes = 0;
  for (int i = 7; i >= 0; --i) header_bytes = (header_bytes << 8) | prefix[i];
  const int64_t limit = std::min(kMaxHeaderBytes, file_bytes - 8);
  if (header_bytes > static_cast<uint64_t>(limit)) {
    return FileError(path,
                     absl::StrFormat("header length is %d, limit is %d", header_bytes, limit));
  }
  std::string text(header_bytes, '\0');
  if (!ReadAt(fd, 8, text.data(), static_cast<int64_t>(header_bytes))) {
    return absl::DataLossError(absl::StrFormat("%s: cannot read the header", path.string()));
  }
  return text;
}

// Fills `entry`, or returns the error's text.
std::optional<std::string> ParseEntry(const json& value, int64_t data_begin, Entry& entry) {
  if (!value.is_object() || !value.contains("dtype") || !value.contains("shape") ||
      !value.contains("data_offsets") || value.size() != 3) {
    return "wants exactly dtype, shape and data_offsets";
  }
  const json& dtype = value["dtype"];
  const json& shape = value["shape"];
  const json& offsets = value["data_offsets"];
  const auto* known =
      std::find_if(kDtypes.begin(), kDtypes.end(), [&](const auto& d) { return dtype == d.name; });
  if (known == kDtypes.end()) return absl::StrFormat("unknown dtype %s", dtype.dump());
  entry.dtype = known->dtype;

  auto is_size = [](const json& n) {
    return n.is_number_unsigned() &&
           n.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  };
  if (!shape.is_array() || !std::all_of(shape.begin(), shape.end(), is_size)) {
    return absl::StrFormat("shape %s is not a list of sizes", shape.dump());
  }
  if (!offsets.is_array() || offsets.size() != 2 ||
      !std::all_of(offsets.begin(), offsets.end(), is_size)) {
    return absl::StrFormat("data_offsets %s are not two sizes", offsets.dump());
  }
  entry.shape = shape.get<std::vector<int64_t>>();
  const auto [begin, end] = offsets.get<std::pair<int64_t, int64_t>>();
  int64_t wanted = static_cast<int64_t>(at::elementSize(entry.dtype));
  // Strides are products of the other sizes, so those must not overflow even if one size is 0.
  for (const int64_t size : entry.shape) {
    if (__builtin_mul_overflow(wanted, std::max<int64_t>(size, 1), &wanted)) {
      return "shape overflows";
    }
  }
  if (std::count(entry.shape.begin(), entry.shape.end(), 0) > 0) wanted = 0;
  if (begin > end || end - begin != wanted) {
    return absl::StrFormat("data_offsets [%d, %d] do not hold the %d bytes of shape %s %s", begin,
                           end, wanted, shape.dump(), known->name);
  }
  if (__builtin_add_overflow(data_begin, begin, &entry.offset)) return "data_offsets overflow";
  entry.num_bytes = wanted;
  return std::nullopt;
}

absl::Status CheckCoverage(const std::filesystem::path& path, const std::vector<std::string>& names,
                           const std::map<std::string, Entry>& entries, int64_t data_begin,
                           int64_t file_bytes) {
  int64_t covered = data_begin;
  for (const std::string& name : names) {
    const Entry& entry = entries.at(name);
    if (entry.offset != covered) {
      return FileError(path, absl::StrFormat("tensor %s: data begins at %d, %s ends at %d", name,
                                             entry.offset - data_begin, "what precedes it",
                                             covered - data_begin));
    }
    if (entry.num_bytes > file_bytes - covered) {
      return FileError(
          path, absl::StrFormat("tensor %s: data ends at %d, file has %d data bytes", name,
                                covered - data_begin + entry.num_bytes, file_bytes - data_begin));
    }
    covered += entry.num_bytes;
  }
  if (covered != file_bytes) {
    return FileError(path, absl::StrFormat("%d bytes belong to no tensor", file_bytes - covered));
  }
  return absl::OkStatus();
}

}  // namespace

std::string SafetensorsDtypeName(at::ScalarType dtype) {
  for (const DtypeName& known : kDtypes) {
    if (known.dtype == dtype) return known.name;
  }
  return "";
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::filesystem::path& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return ReadError(path, "open", errno);
  SafetensorsFile file;
  file.path_ = path;
  file.fd_ = std::shared_ptr<const int>(new int(fd), [](const int* p) {
    close(*p);
    delete p;
  });
  struct stat info {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    return FileError(path, "is not a regular file");
  }
  ASSIGN_OR_RETURN(const std::string text, ReadHeaderText(path, fd, info.st_size));
  ASSIGN_OR_RETURN(const json header, ParseHeader(path, text));

  const int64_t data_begin = 8 + static_cast<int64_t>(text.size());
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") {
      if (!value.is_object()) return FileError(path, "__metadata__ is not an object");
      for (const auto& [key, entry] : value.items()) {
        if (!entry.is_string()) {
          return FileError(path, absl::StrFormat("__metadata__ %s is not a string", key));
        }
        file.metadata_[key] = entry.get<std::string>();
      }
      continue;
    }
    Entry entry;
    if (const auto error = ParseEntry(value, data_begin, entry)) {
      return FileError(path, absl::StrFormat("tensor %s: %s", name, *error));
    }
    file.names_.push_back(name);
    file.entries_[name] = std::move(entry);
  }
  std::stable_sort(file.names_.begin(), file.names_.end(),
                   [&](const std::string& left, const std::string& right) {
                     const Entry& l = file.entries_[left];
                     const Entry& r = file.entries_[right];
                     return std::pair(l.offset, l.num_bytes) < std::pair(r.offset, r.num_bytes);
                   });
  RETURN_IF_ERROR(CheckCoverage(path, file.names_, file.entries_, data_begin, info.st_size));
  return file;
}

const SafetensorsFile::Entry* SafetensorsFile::Find(const std::string& name) const {
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : &found->second;
}

absl::StatusOr<const SafetensorsFile::Entry*> SafetensorsFile::Get(const std::string& name) const {
  if (const Entry* entry = Find(name)) return entry;
  return absl::NotFoundError(absl::StrFormat("%s: no tensor %s", path_.string(), name));
}

absl::StatusOr<at::Tensor> SafetensorsFile::Read(const std::string& name) const {
  ASSIGN_OR_RETURN(const Entry* const entry, Get(name));
  at::Tensor tensor = at::empty(entry->shape, at::TensorOptions().dtype(entry->dtype));
  RETURN_IF_ERROR(ReadBytes("tensor " + name, entry->offset, entry->num_bytes, tensor.data_ptr()));
  return tensor;
}

absl::StatusOr<at::Tensor> SafetensorsFile::ReadSlice(const std::string& name,
                                                      const Slice& slice) const {
  return ReadSlices(name, {slice});
}

// Uses pread, not a mapping: if the file becomes shorter meanwhile, the result is an error and not
// a signal.
absl::StatusOr<at::Tensor> SafetensorsFile::ReadSlices(const std::string& name,
                                                       const std::vector<Slice>& slices) const {
  ASSIGN_OR_RETURN(const Entry* const entry, Get(name));
  const auto num_dims = static_cast<int64_t>(entry->shape.size());
  std::vector<int64_t> begin(num_dims);
  std::vector<int64_t> size = entry->shape;
  int64_t last = 0;  // last dimension that is cut
  for (const Slice& slice : slices) {
    TORCH_CHECK(slice.dim >= 0 && slice.dim < num_dims && slice.begin >= 0 && slice.size >= 0 &&
                    slice.begin + slice.size <= entry->shape[slice.dim],
                "slice outside of tensor ", name);
    begin[slice.dim] = slice.begin;
    size[slice.dim] = slice.size;
    last = std::max(last, slice.dim);
  }
  std::vector<int64_t> strides(num_dims, static_cast<int64_t>(at::elementSize(entry->dtype)));
  for (int64_t dim = num_dims - 2; dim >= 0; --dim) {
    strides[dim] = strides[dim + 1] * entry->shape[dim + 1];
  }
  // A run is a contiguous range in the file.
  const auto end = size.begin() + last;
  const int64_t num_runs = std::accumulate(size.begin(), end, int64_t{1}, std::multiplies<>());
  const int64_t run_bytes = strides[last] * size[last];
  at::Tensor tensor = at::empty(size, at::TensorOptions().dtype(entry->dtype));
  auto* next = static_cast<char*>(tensor.data_ptr());
  const std::string what = "tensor " + name;
  for (int64_t run = 0; run < num_runs; ++run, next += run_bytes) {
    int64_t offset = entry->offset + begin[last] * strides[last];
    for (int64_t dim = last - 1, rest = run; dim >= 0; rest /= size[dim--]) {
      offset += (begin[dim] + rest % size[dim]) * strides[dim];
    }
    RETURN_IF_ERROR(ReadBytes(what, offset, run_bytes, next));
  }
  return tensor;
}

absl::Status SafetensorsFile::Stream(
    const std::string& name,
    const std::function<void(const void* data, int64_t num_bytes)>& take) const {
  ASSIGN_OR_RETURN(const Entry* const entry, Get(name));
  std::vector<char> buffer(std::min(entry->num_bytes, kStreamBytes));
  const std::string what = "tensor " + name;
  for (int64_t done = 0; done < entry->num_bytes;) {
    const int64_t num_bytes = std::min(entry->num_bytes - done, kStreamBytes);
    RETURN_IF_ERROR(ReadBytes(what, entry->offset + done, num_bytes, buffer.data()));
    take(buffer.data(), num_bytes);
    done += num_bytes;
  }
  return absl::OkStatus();
}

std::vector<SafetensorsFile::Group> SafetensorsFile::Groups() const {
  std::vector<Group> groups;
  for (size_t i = 0; i < names_.size(); ++i) {
    const Entry& entry = entries_.at(names_[i]);
    const int64_t end = entry.offset + entry.num_bytes;
    if (groups.empty() || end - groups.back().begin > kGroupBytes) {
      groups.push_back({.first = i, .begin = entry.offset});
    }
    groups.back().last = i;
    groups.back().end = end;
  }
  return groups;
}

absl::Status SafetensorsFile::ReadAll(ThreadTeam& team, const Take& take) const {
  const std::vector<Group> groups = Groups();
  std::vector<absl::Status> statuses(groups.size());
  std::vector<std::vector<char>> buffers(team.num_threads());
  team.Run(static_cast<int64_t>(groups.size()), [&](int64_t group, int64_t thread) {
    statuses[group] = ReadGroup(groups[group], buffers[thread], take);
  });
  for (absl::Status& status : statuses) RETURN_IF_ERROR(std::move(status));
  return absl::OkStatus();
}

absl::Status SafetensorsFile::ReadGroup(const Group& group, std::vector<char>& buffer,
                                        const Take& take) const {
  const int64_t num_bytes = group.end - group.begin;
  buffer.resize(std::max<size_t>(buffer.size(), num_bytes));
  RETURN_IF_ERROR(
      ReadBytes("tensor " + names_[group.first], group.begin, num_bytes, buffer.data()));
  for (size_t i = group.first; i <= group.last; ++i) {
    const Entry& entry = entries_.at(names_[i]);
    RETURN_IF_ERROR(take({names_[i], entry, buffer.data() + (entry.offset - group.begin)}));
  }
  return absl::OkStatus();
}

absl::Status SafetensorsFile::ReadBytes(const std::string& what, int64_t offset, int64_t num_bytes,
                                        void* data) const {
  if (ReadAt(*fd_, offset, data, num_bytes)) return absl::OkStatus();
  if (const int error = errno) return ReadError(path_, "read", error);
  return absl::DataLossError(absl::StrFormat("%s: %s: cannot read %d bytes at %d", path_.string(),
                                             what, num_bytes, offset));
}

}  // namespace lathe::worker
