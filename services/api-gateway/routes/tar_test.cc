#include "services/api-gateway/routes/tar.h"

#include <stdlib.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "services/api-gateway/routes/tar_stream.h"

namespace lathe::gateway {
namespace {

class TempDir {
 public:
  TempDir() {
    char folder[] = "/tmp/lathe-tar-XXXXXX";
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

std::string ReadAll(TarStream& stream) {
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
  auto stream = TarStream::Open(
      from.path(), {{"adapter_config.json", 2}, {"adapter_model.safetensors", 3'000'001}});
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
  CHECK_FALSE(TarStream::Open(from.path(), {{"missing", 0}}).ok());
  CHECK_FALSE(TarStream::Open(from.path(), {{"a", 5}}).ok());
  CHECK_FALSE(TarStream::Open(from.path(), {{"link", 4}}).ok());
}

TEST_CASE("A checkpoint deleted during a download is still delivered whole", "[archive]") {
  const TempDir from;
  from.Write("a", "four");
  auto stream = TarStream::Open(from.path(), {{"a", 4}});
  REQUIRE(stream.ok());
  std::filesystem::remove(from.path() / "a");
  CHECK(ReadAll(**stream).find("four") != std::string::npos);
}

TEST_CASE("Names that would leave the folder are refused", "[archive]") {
  const auto name =
      GENERATE(as<std::string>(), "", "..", ".hidden", "a/b", "/etc/passwd", std::string(101, 'x'));
  CHECK_FALSE(TarHeader({name, 0}, absl::UnixEpoch()).ok());
}

TEST_CASE("Sizes of 8 GiB and more are written in base 256", "[archive]") {
  const auto header = TarHeader({"a", int64_t{1} << 33}, absl::UnixEpoch());
  REQUIRE(header.ok());
  CHECK(header->substr(124, 12) == std::string("\x80\0\0\0\0\0\0\x02\0\0\0\0", 12));
}

}  // namespace
}  // namespace lathe::gateway
