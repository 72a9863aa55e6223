// Reads checkpoint files on threads apart from the HTTP threads.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/thread_pool.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/api-gateway/routes/download_stream.h"

namespace lathe::gateway {

namespace asio = boost::asio;

// Opens and reads downloads on threads of its own, which may block on the disk or a store.
class ArchiveFiles {
 public:
  // The folders that the engine names are below DATA_DIR/checkpoints, or in `objects` if that is
  // not null. Without either, no download opens.
  explicit ArchiveFiles(const std::filesystem::path& data_dir,
                        std::shared_ptr<CheckpointObjects> objects = nullptr);
  // Waits for the reads in progress.
  ~ArchiveFiles();

  // Opens a download of files in `dir`: if `is_plain`, the only member unchanged, otherwise a tar
  // of all members. Unimplemented without a data_dir and objects.
  asio::awaitable<absl::StatusOr<std::shared_ptr<DownloadStream>>> Open(
      std::string dir, std::vector<TarMember> members, bool is_plain);
  asio::awaitable<absl::StatusOr<std::string>> ReadNext(std::shared_ptr<DownloadStream> stream);

 private:
  const std::filesystem::path checkpoints_dir_;
  const std::shared_ptr<CheckpointObjects> objects_;
  asio::thread_pool pool_;
};

}  // namespace lathe::gateway
