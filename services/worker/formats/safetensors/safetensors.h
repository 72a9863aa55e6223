// The safetensors file format (github.com/huggingface/safetensors): 8 bytes of header length, a
// JSON header, then the tensors' bytes without holes. Little-endian.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "libs/common/concurrency/thread_team.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

// Returns the name of `dtype` in a header ("F32", "BF16", …); empty if the format has none.
std::string SafetensorsDtypeName(at::ScalarType dtype);

// A file opened for reading. Open checks the whole header, so Read fails only on I/O.
class SafetensorsFile {
 public:
  struct Entry {
    at::ScalarType dtype = at::kFloat;
    std::vector<int64_t> shape;
    int64_t offset = 0;  // bytes from the start of the file
    int64_t num_bytes = 0;
  };

  // Opens `path` and checks its header. InvalidArgument names file and tensor: header too long or
  // not JSON, duplicate name, unknown dtype, shape that does not match the byte range, overlapping
  // ranges, holes, trailing bytes.
  static absl::StatusOr<SafetensorsFile> Open(const std::filesystem::path& path);

  // The tensors' names, in the order of their bytes in the file.
  const std::vector<std::string>& names() const { return names_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::filesystem::path& path() const { return path_; }

  // Returns null if there is no such tensor.
  const Entry* Find(const std::string& name) const;

  // Returns a new contiguous CPU tensor. NotFound, or DataLoss if the file became shorter.
  absl::StatusOr<at::Tensor> Read(const std::string& name) const;

  // Positions [begin, begin + size) of dimension `dim`, and all positions of the others.
  struct Slice {
    int64_t dim = 0;
    int64_t begin = 0;
    int64_t size = 0;
  };

  // Returns Read(name).narrow(dim, begin, size), contiguous, and reads no other bytes. The slice
  // must be within the tensor. Errors as Read.
  absl::StatusOr<at::Tensor> ReadSlice(const std::string& name, const Slice& slice) const;
  // Like ReadSlice, for slices of several dimensions, at most one per dimension.
  absl::StatusOr<at::Tensor> ReadSlices(const std::string& name,
                                        const std::vector<Slice>& slices) const;

  // Passes the tensor's bytes to `take` in order, a few MiB at a time. Errors as Read.
  absl::Status Stream(const std::string& name,
                      const std::function<void(const void* data, int64_t num_bytes)>& take) const;

  // A tensor's bytes, valid during the call of Take.
  struct Bytes {
    const std::string& name;
    const Entry& entry;
    void* data;
  };
  using Take = std::function<absl::Status(const Bytes& tensor)>;

  // Reads every tensor once and passes it to `take`, on the threads of `team` in any order. Returns
  // the error of the first tensor in the file that has one: DataLoss as Read, or the error of
  // `take`.
  absl::Status ReadAll(ThreadTeam& team, const Take& take) const;

 private:
  // Consecutive tensors of names_ that are read together, and their bytes in the file.
  struct Group {
    size_t first = 0;
    size_t last = 0;
    int64_t begin = 0;
    int64_t end = 0;
  };

  SafetensorsFile() = default;
  // Returns the entry of `name`. NotFound names the tensor.
  absl::StatusOr<const Entry*> Get(const std::string& name) const;
  std::vector<Group> Groups() const;
  absl::Status ReadGroup(const Group& group, std::vector<char>& buffer, const Take& take) const;
  absl::Status ReadBytes(const std::string& what, int64_t offset, int64_t num_bytes,
                         void* data) const;

  std::filesystem::path path_;
  std::shared_ptr<const int> fd_;  // closed with the last copy
  std::vector<std::string> names_;
  std::map<std::string, Entry> entries_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace lathe::worker
