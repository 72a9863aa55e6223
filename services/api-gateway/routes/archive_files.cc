#include "services/api-gateway/routes/archive_files.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

#include "libs/common/errors.h"

namespace lathe::gateway {
namespace {

// One slow read of a network file system leaves threads for other downloads.
constexpr int kNumThreads = 4;

absl::StatusOr<std::unique_ptr<DownloadStream>> OpenNow(const OpenDownloadFile& open,
                                                        std::vector<TarMember> members,
                                                        bool is_plain) {
  if (!is_plain) return DownloadStream::OpenTar(open, std::move(members));
  if (members.size() == 1) return DownloadStream::OpenPlain(open, members[0]);
  return absl::InternalError("a plain download has one file");
}

asio::awaitable<absl::StatusOr<std::shared_ptr<DownloadStream>>> OpenHere(
    OpenDownloadFile open, std::vector<TarMember> members, bool is_plain) {
  absl::StatusOr<std::unique_ptr<DownloadStream>> stream =
      OpenNow(open, std::move(members), is_plain);
  if (!stream.ok()) co_return stream.status();
  co_return std::shared_ptr<DownloadStream>(*std::move(stream));
}

asio::awaitable<absl::StatusOr<std::string>> ReadHere(std::shared_ptr<DownloadStream> stream) {
  co_return stream->Next();
}

}  // namespace

ArchiveFiles::ArchiveFiles(const std::filesystem::path& data_dir,
                           std::shared_ptr<CheckpointObjects> objects)
    : checkpoints_dir_(data_dir.empty() ? data_dir : data_dir / "checkpoints"),
      objects_(std::move(objects)),
      pool_(kNumThreads) {}

ArchiveFiles::~ArchiveFiles() { pool_.join(); }

asio::awaitable<absl::StatusOr<std::shared_ptr<DownloadStream>>> ArchiveFiles::Open(
    std::string dir, std::vector<TarMember> members, bool is_plain) {
  if (checkpoints_dir_.empty() && objects_ == nullptr) {
    co_return WithDetail(
        absl::UnimplementedError("this gateway serves no downloads: its operator has not set "
                                 "gateway.data_dir or storage.files"),
        "downloads_not_served");
  }
  OpenDownloadFile open =
      objects_ == nullptr ? FilesIn(checkpoints_dir_ / dir) : ObjectsOf(objects_, std::move(dir));
  auto opening = OpenHere(std::move(open), std::move(members), is_plain);
  co_return co_await asio::co_spawn(pool_, std::move(opening), asio::use_awaitable);
}

asio::awaitable<absl::StatusOr<std::string>> ArchiveFiles::ReadNext(
    std::shared_ptr<DownloadStream> stream) {
  auto reading = ReadHere(std::move(stream));
  co_return co_await asio::co_spawn(pool_, std::move(reading), asio::use_awaitable);
}

}  // namespace lathe::gateway
