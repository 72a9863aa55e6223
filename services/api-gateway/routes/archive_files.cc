#include "services/api-gateway/routes/archive_files.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

#include "libs/common/errors.h"

namespace lathe::gateway {
namespace {

// One slow read of a network file system leaves threads for other downloads.
constexpr int kNumThreads = 4;

absl::StatusOr<std::unique_ptr<DownloadStream>> OpenNow(const std::filesystem::path& dir,
                                                        std::vector<TarMember> members,
                                                        bool is_plain) {
  if (!is_plain) return DownloadStream::OpenTar(dir, std::move(members));
  if (members.size() == 1) return DownloadStream::OpenPlain(dir, members[0]);
  return absl::InternalError("a plain download has one file");
}

asio::awaitable<absl::StatusOr<std::shared_ptr<DownloadStream>>> OpenHere(
    std::filesystem::path dir, std::vector<TarMember> members, bool is_plain) {
  absl::StatusOr<std::unique_ptr<DownloadStream>> stream =
      OpenNow(dir, std::move(members), is_plain);
  if (!stream.ok()) co_return stream.status();
  co_return std::shared_ptr<DownloadStream>(*std::move(stream));
}

asio::awaitable<absl::StatusOr<std::string>> ReadHere(std::shared_ptr<DownloadStream> stream) {
  co_return stream->Next();
}

}  // namespace

ArchiveFiles::ArchiveFiles(const std::filesystem::path& data_dir)
    : checkpoints_dir_(data_dir.empty() ? data_dir : data_dir / "checkpoints"),
      pool_(kNumThreads) {}

ArchiveFiles::~ArchiveFiles() { pool_.join(); }

asio::awaitable<absl::StatusOr<std::shared_ptr<DownloadStream>>> ArchiveFiles::Open(
    std::string dir, std::vector<TarMember> members, bool is_plain) {
  if (checkpoints_dir_.empty()) {
    co_return WithDetail(
        absl::UnimplementedError("this gateway serves no downloads: its operator has not set "
                                 "gateway.data_dir"),
        "downloads_not_served");
  }
  auto opening = OpenHere(checkpoints_dir_ / dir, std::move(members), is_plain);
  co_return co_await asio::co_spawn(pool_, std::move(opening), asio::use_awaitable);
}

asio::awaitable<absl::StatusOr<std::string>> ArchiveFiles::ReadNext(
    std::shared_ptr<DownloadStream> stream) {
  auto reading = ReadHere(std::move(stream));
  co_return co_await asio::co_spawn(pool_, std::move(reading), asio::use_awaitable);
}

}  // namespace lathe::gateway
