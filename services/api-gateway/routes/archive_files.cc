#include "services/api-gateway/routes/archive_files.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

namespace lathe::gateway {
namespace {

asio::awaitable<absl::StatusOr<std::shared_ptr<TarStream>>> OpenHere(
    std::filesystem::path dir, std::vector<TarMember> members) {
  absl::StatusOr<std::unique_ptr<TarStream>> stream = TarStream::Open(dir, std::move(members));
  if (!stream.ok()) co_return stream.status();
  co_return std::shared_ptr<TarStream>(*std::move(stream));
}

asio::awaitable<absl::StatusOr<std::string>> ReadHere(std::shared_ptr<TarStream> stream) {
  co_return stream->Next();
}

}  // namespace

ArchiveFiles::ArchiveFiles(std::filesystem::path data_dir)
    : data_dir_(std::move(data_dir)), pool_(1) {}

ArchiveFiles::~ArchiveFiles() { pool_.join(); }

asio::awaitable<absl::StatusOr<std::shared_ptr<TarStream>>> ArchiveFiles::Open(
    std::string dir, std::vector<TarMember> members) {
  auto opening = OpenHere(data_dir_ / dir, std::move(members));
  co_return co_await asio::co_spawn(pool_, std::move(opening), asio::use_awaitable);
}

asio::awaitable<absl::StatusOr<std::string>> ArchiveFiles::ReadNext(
    std::shared_ptr<TarStream> stream) {
  auto reading = ReadHere(std::move(stream));
  co_return co_await asio::co_spawn(pool_, std::move(reading), asio::use_awaitable);
}

}  // namespace lathe::gateway
