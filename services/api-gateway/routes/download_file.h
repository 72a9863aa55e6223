// The bytes of a checkpoint's file, on a disk or in a store of objects.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "libs/common/object_store/checkpoint_objects.h"
#include "services/api-gateway/routes/tar.h"

namespace lathe::gateway {

// Blocks. Only one thread at a time may use it.
class DownloadFile {
 public:
  virtual ~DownloadFile() = default;

  // Returns at least one byte, and at most `size`, from `offset` on. DataLoss: the file has shrunk.
  virtual absl::StatusOr<std::string> Read(int64_t offset, int64_t size) = 0;
  virtual absl::Time modified_at() const = 0;
};

// Opens a member of a checkpoint. NotFound unless it is a plain file of the member's size.
using OpenDownloadFile =
    std::function<absl::StatusOr<std::shared_ptr<DownloadFile>>(const TarMember& member)>;

// Files in a folder. An open file is delivered whole after its deletion.
OpenDownloadFile FilesIn(std::filesystem::path folder);
// Objects of the checkpoint `dir`. Memory: a few MiB of each open file.
OpenDownloadFile ObjectsOf(std::shared_ptr<CheckpointObjects> objects, std::string dir);

}  // namespace lathe::gateway
