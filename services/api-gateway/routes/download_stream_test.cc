#include "services/api-gateway/routes/download_stream.h"

#include <stdlib.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

#include "libs/common/object_store/directory_store.h"

namespace lathe::gateway {
namespace {

class TempDir {
 public:
  TempDir() {
    char folder[] = "/tmp/lathe-download-XXXXXX";
    path_ = mkdtemp(folder);
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  std::filesystem::path Write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
    return path_ / name;
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

std::string ReadAll(DownloadStream& stream) {
  std::string all;
  while (true) {
    const auto piece = stream.Next();
    REQUIRE(piece.ok());
    if (piece->empty()) return all;
    all += *piece;
  }
}

TEST_CASE("A folder becomes an archive that tar extracts, of the announced length", "[archive]") {
  const TempDir from;
  const std::string large(3'000'001, 'x');
  from.Write("adapter_config.json", "{}");
  from.Write("adapter_model.safetensors", large);
  auto stream = DownloadStream::OpenTar(
      FilesIn(from.path()), {{"adapter_config.json", 2}, {"adapter_model.safetensors", 3'000'001}});
  REQUIRE(stream.ok());
  const std::string bytes = ReadAll(**stream);
  CHECK(static_cast<int64_t>(bytes.size()) == (*stream)->num_bytes());
  const TempDir to;
  const std::string tar = to.Write("a.tar", bytes);
  REQUIRE(std::system(("tar -xf " + tar + " -C " + to.path().string()).c_str()) == 0);
  CHECK(std::filesystem::file_size(to.path() / "adapter_model.safetensors") == large.size());
  CHECK(std::filesystem::file_size(to.path() / "adapter_config.json") == 2);
  CHECK(std::filesystem::exists(to.path() / "checkpoint_complete"));
}

TEST_CASE("A file that is missing, linked or of another size is not delivered", "[archive]") {
  const TempDir from;
  from.Write("a", "four");
  std::filesystem::create_symlink("/etc/passwd", from.path() / "link");
  CHECK_FALSE(DownloadStream::OpenTar(FilesIn(from.path()), {{"missing", 0}}).ok());
  CHECK_FALSE(DownloadStream::OpenTar(FilesIn(from.path()), {{"a", 5}}).ok());
  CHECK_FALSE(DownloadStream::OpenTar(FilesIn(from.path()), {{"link", 4}}).ok());
}

TEST_CASE("A checkpoint deleted during a download is still delivered whole", "[archive]") {
  const TempDir from;
  from.Write("a", "four");
  auto stream = DownloadStream::OpenTar(FilesIn(from.path()), {{"a", 4}});
  REQUIRE(stream.ok());
  std::filesystem::remove(from.path() / "a");
  CHECK(ReadAll(**stream).find("four") != std::string::npos);
}

TEST_CASE("Names that would leave the folder are refused", "[archive]") {
  const auto name =
      GENERATE(as<std::string>(), "", "..", ".hidden", "a/b", "/etc/passwd", std::string(101, 'x'));
  CHECK_FALSE(TarHeader({name, 0}, absl::UnixEpoch()).ok());
}

TEST_CASE("A size of 8 GiB or more is announced too", "[archive]") {
  const auto header = TarHeader({"a", int64_t{1} << 33}, absl::UnixEpoch());
  REQUIRE(header.ok());
  CHECK(header->size() % kTarBlockBytes == 0);
  CHECK(header->find("size=8589934592\n") != std::string::npos);
}

TEST_CASE("Any range of a download is that part of the whole", "[archive]") {
  const TempDir from;
  from.Write("a", "four");
  from.Write("b", std::string(1'500'000, 'b'));
  const bool is_plain = GENERATE(false, true);
  const auto open = [&] {
    return is_plain ? DownloadStream::OpenPlain(FilesIn(from.path()), {"b", 1'500'000})
                    : DownloadStream::OpenTar(FilesIn(from.path()), {{"a", 4}, {"b", 1'500'000}});
  };
  auto stream = open();
  REQUIRE(stream.ok());
  const std::string whole = ReadAll(**stream);
  const auto total = static_cast<int64_t>(whole.size());
  CHECK(total == (*stream)->num_bytes());
  for (const auto& [begin, end] : std::vector<std::pair<int64_t, int64_t>>{
           {0, 1}, {511, 513}, {1000, 1'200'000}, {total - 1, total}, {700, 700}, {0, total}}) {
    auto part = open();
    (*part)->Select(begin, end);
    CHECK(ReadAll(**part) == whole.substr(begin, end - begin));
  }
}

// A store that notes the ranges it is asked for.
class CountingStore : public DirectoryStore {
 public:
  using DirectoryStore::DirectoryStore;
  absl::StatusOr<std::string> Get(const std::string& name, int64_t offset, int64_t size) override {
    sizes.push_back(size);
    return DirectoryStore::Get(name, offset, size);
  }
  std::vector<int64_t> sizes;
};

TEST_CASE("A small range fetches little of an object, and a download comes in large pieces",
          "[archive]") {
  constexpr int64_t kLarge = 40 << 20;
  const TempDir from;
  std::filesystem::create_directories(from.path() / "checkpoints" / "c1");
  std::ofstream(from.path() / "checkpoints/c1/large").close();
  std::filesystem::resize_file(from.path() / "checkpoints/c1/large", kLarge);
  const auto store = std::make_shared<CountingStore>(from.path());
  auto stream = DownloadStream::OpenPlain(
      ObjectsOf(std::make_shared<CheckpointObjects>(store), "c1"), {"large", kLarge});
  REQUIRE(stream.ok());
  for (const int64_t begin : {int64_t{0}, kLarge / 2, kLarge - 1}) {
    (*stream)->Select(begin, begin + 1);
    CHECK(ReadAll(**stream).size() == 1);
  }
  REQUIRE(store->sizes.size() == 3);
  for (const int64_t size : store->sizes) CHECK(size <= 64 << 10);
  store->sizes.clear();
  (*stream)->Select(0, kLarge);
  CHECK(static_cast<int64_t>(ReadAll(**stream).size()) == kLarge);
  CHECK(store->sizes.size() < 20);
}

TEST_CASE("Objects give the download that files give, also in ranges", "[archive]") {
  // Larger than what is fetched of an object at a time.
  constexpr int64_t kLarge = (8 << 20) + 12'345;
  const TempDir from;
  std::filesystem::create_directories(from.path() / "checkpoints" / "c1");
  std::string large(kLarge, ' ');
  for (size_t i = 0; i < large.size(); ++i) large[i] = static_cast<char>('a' + i % 23);
  from.Write("checkpoints/c1/large", large);
  const auto objects =
      std::make_shared<CheckpointObjects>(std::make_shared<DirectoryStore>(from.path()));
  auto stream = DownloadStream::OpenPlain(ObjectsOf(objects, "c1"), {"large", kLarge});
  REQUIRE(stream.ok());
  CHECK((ReadAll(**stream) == large));
  for (const auto& [begin, end] :
       std::vector<std::pair<int64_t, int64_t>>{{kLarge - 1, kLarge}, {5, 9'000'000 - 600'000}}) {
    (*stream)->Select(begin, end);
    CHECK((ReadAll(**stream) == large.substr(begin, end - begin)));
  }
  CHECK(
      absl::IsNotFound(DownloadStream::OpenPlain(ObjectsOf(objects, "c1"), {"large", 1}).status()));
  CHECK(absl::IsNotFound(
      DownloadStream::OpenTar(ObjectsOf(objects, "c1"), {{"missing", 1}}).status()));
}

}  // namespace
}  // namespace lathe::gateway
