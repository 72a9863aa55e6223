#include "services/api-gateway/routes/archive_files.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

namespace lathe::gateway {
namespace {

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

ArchiveFiles::ArchiveFiles(std::filesystem::path data_dir)
    : data_dir_(std::move(data_dir)), pool_(1) {}

ArchiveFiles::~ArchiveFiles() { pool_.join(); }

asio::awaitable<absl::StatusOr<std::shared_ptr<DownloadStream>>> ArchiveFiles::Open(
    std::string dir, std::vector<TarMember> members, bool is_plain) {
  auto opening = OpenHere(data_dir_ / dir, std::move(members), is_plain);
  co_return co_await asio::co_spawn(pool_, std::move(opening), asio::use_awaitable);
}

asio::awaitable<absl::StatusOr<std::string>> ArchiveFiles::ReadNext(
    std::shared_ptr<DownloadStream> stream) {
  auto reading = ReadHere(std::move(stream));
  co_return co_await asio::co_spawn(pool_, std::move(reading), asio::use_awaitable);
}

}  // namespace lathe::gateway
