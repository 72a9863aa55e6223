#include "services/worker/formats/safetensors/safetensors.h"

#include <sys/resource.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "services/worker/formats/safetensors/read_error.h"
#include "services/worker/formats/safetensors/safetensors_writer.h"
#include "services/worker/testing/test_temp_dir.h"

namespace lathe::worker {
namespace {

void WriteRaw(const std::filesystem::path& path, const std::string& header, int num_data_bytes) {
  std::ofstream file(path, std::ios::binary);
  uint64_t size = header.size();
  for (int i = 0; i < 8; ++i) file.put(static_cast<char>(size >> (8 * i)));
  file << header << std::string(num_data_bytes, 'x');
}

TEST_CASE("Safetensors: written tensors are read back bit for bit", "[checkpoint]") {
  const TempDir dir;
  const at::Tensor floats = at::randn({3, 5});
  const at::Tensor halves = at::randn({2, 7}).to(at::kBFloat16).t();
  const at::Tensor empty = at::empty({0, 4}, at::kLong);
  const auto written = WriteSafetensors(
      dir / "a.safetensors", {{"z", floats}, {"a", halves}, {"none", empty}}, {{"format", "pt"}});
  REQUIRE(written.ok());

  const auto file = SafetensorsFile::Open(dir / "a.safetensors");
  REQUIRE(file.ok());
  CHECK(file->names().size() == 3);
  CHECK(file->metadata().at("format") == "pt");
  CHECK(at::equal(*file->Read("z"), floats));
  CHECK(at::equal(*file->Read("a"), halves));
  CHECK(file->Read("none")->sizes() == empty.sizes());
  CHECK(file->Read("b").status().code() == absl::StatusCode::kNotFound);
  const auto digest = DigestFile(dir / "a.safetensors");
  CHECK(digest->sha256 == written->sha256);
  CHECK(digest->size_bytes == written->size_bytes);
}

std::string Sha256Of(const at::Tensor& contiguous) {
  Sha256 hash;
  hash.Update(contiguous.const_data_ptr(), contiguous.nbytes());
  return hash.HexDigest();
}

TEST_CASE("Safetensors: factors of any size that are stored transposed are transposed",
          "[checkpoint]") {
  const TempDir dir;
  std::vector<NamedTensor> tensors;
  for (const auto& [rank, rows] : {std::pair(1, 70000), std::pair(7, 30000), std::pair(32, 2048),
                                   std::pair(512, 300), std::pair(100000, 3)}) {
    tensors.push_back({"b" + std::to_string(rank), at::randn({rank, rows}).t()});
  }
  tensors.push_back({"a", at::randn({300, 400})});
  const auto written = WriteSafetensors(dir / "a.safetensors", tensors, {});
  REQUIRE(written.ok());
  REQUIRE(written->tensors.size() == tensors.size());
  const auto file = SafetensorsFile::Open(dir / "a.safetensors");
  REQUIRE(file.ok());
  for (size_t i = 0; i < tensors.size(); ++i) {
    INFO(tensors[i].name);
    CHECK(at::equal(*file->Read(tensors[i].name), tensors[i].tensor));
    CHECK(written->tensors[i] == Sha256Of(tensors[i].tensor.contiguous()));
  }
}

TEST_CASE("Safetensors: a slice is what narrow gives of the whole tensor", "[checkpoint]") {
  const TempDir dir;
  const at::Tensor before = at::randn({3});
  const at::Tensor matrix = at::randn({6, 7}).to(at::kBFloat16);
  const at::Tensor cube = at::randn({2, 3, 4});
  const at::Tensor behind = at::randn({5});
  REQUIRE(WriteSafetensors(
              dir / "a.safetensors",
              {{"before", before}, {"matrix", matrix}, {"cube", cube}, {"behind", behind}}, {})
              .ok());
  const auto file = SafetensorsFile::Open(dir / "a.safetensors");
  REQUIRE(file.ok());
  for (const auto& [name, whole] :
       {std::pair("before", before), std::pair("matrix", matrix), std::pair("cube", cube)}) {
    for (int64_t dim = 0; dim < whole.dim(); ++dim) {
      for (int64_t begin = 0; begin <= whole.size(dim); ++begin) {
        for (int64_t size = 0; begin + size <= whole.size(dim); ++size) {
          INFO(name << " dim " << dim << " [" << begin << ", " << begin + size << ")");
          const auto slice = file->ReadSlice(name, {.dim = dim, .begin = begin, .size = size});
          REQUIRE(slice.ok());
          CHECK(slice->is_contiguous());
          CHECK(at::equal(*slice, whole.narrow(dim, begin, size)));
        }
      }
    }
  }
  const auto box = file->ReadSlices("cube", {{.dim = 2, .begin = 1, .size = 2},
                                             {.dim = 0, .begin = 1, .size = 1},
                                             {.dim = 1, .begin = 0, .size = 2}});
  REQUIRE(box.ok());
  CHECK(at::equal(*box, cube.narrow(2, 1, 2).narrow(0, 1, 1).narrow(1, 0, 2)));
  CHECK(file->ReadSlice("none", {}).status().code() == absl::StatusCode::kNotFound);
  CHECK_THROWS(file->ReadSlice("before", {.dim = 0, .begin = 2, .size = 2}).ok());
}

TEST_CASE("Safetensors: a tensor streams in order, whatever its size", "[checkpoint]") {
  const TempDir dir;
  const int64_t mebi = int64_t{1} << 20;
  const int64_t size = GENERATE_COPY(int64_t{0}, int64_t{1}, 4 * mebi, 9 * mebi + 1);
  const at::Tensor bytes = at::randint(256, {size}, at::kByte);
  REQUIRE(WriteSafetensors(dir / "a.safetensors", {{"bytes", bytes}}, {}).ok());
  const auto file = SafetensorsFile::Open(dir / "a.safetensors");
  REQUIRE(file.ok());
  std::string streamed;
  REQUIRE(file->Stream("bytes",
                       [&](const void* data, int64_t num_bytes) {
                         streamed.append(static_cast<const char*>(data), num_bytes);
                       })
              .ok());
  const auto* const begin = static_cast<const char*>(bytes.const_data_ptr());
  CHECK(streamed == std::string(begin, begin + size));

  std::filesystem::resize_file(dir / "a.safetensors",
                               std::filesystem::file_size(dir / "a.safetensors") - (size > 0));
  const absl::Status cut = file->Stream("bytes", [](const void*, int64_t) {});
  CHECK(cut.code() == (size > 0 ? absl::StatusCode::kDataLoss : absl::StatusCode::kOk));
}

TEST_CASE("Safetensors: a broken header is refused with file and tensor", "[checkpoint]") {
  struct Case {
    std::string header;
    int num_data_bytes;
    std::string message;
  };
  const Case broken = GENERATE(
      Case{"{", 0, "not a JSON object"}, Case{"[]", 0, "not a JSON object"},
      Case{R"({"w":{"dtype":"F12","shape":[1],"data_offsets":[0,4]}})", 4, "unknown dtype"},
      Case{R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4, "do not hold"},
      Case{R"({"w":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "not a list of sizes"},
      Case{R"({"w":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,4]}})", 4,
           "overflows"},
      Case{R"({"w":{"dtype":"F32","shape":[0,4611686018427387904,4],"data_offsets":[0,0]}})", 0,
           "overflows"},
      Case{R"({"w":)" + std::string(5000, '[') + std::string(5000, ']') + "}", 0,
           "nested deeper than 8"},
      Case{R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 3, "file has 3"},
      Case{R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 5, "belong to no tensor"},
      Case{R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8, "begins at 4"},
      Case{R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
           R"("v":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})",
           6, "tensor v"},
      Case{R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
           R"("w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
           4, "duplicate name w"},
      Case{R"({"w":{"dtype":"F32","shape":[1]}})", 4, "tensor w"},
      Case{R"({"__metadata__":{"a":1}})", 0, "not a string"});
  const TempDir dir;
  WriteRaw(dir / "bad.safetensors", broken.header, broken.num_data_bytes);
  const auto file = SafetensorsFile::Open(dir / "bad.safetensors");
  REQUIRE(file.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(file.status().message()), Catch::Contains("bad.safetensors"));
  CHECK_THAT(std::string(file.status().message()), Catch::Contains(broken.message));
}

TEST_CASE("Safetensors: a header length beyond the file is refused", "[checkpoint]") {
  const TempDir dir;
  std::ofstream(dir / "short.safetensors", std::ios::binary) << std::string(8, '\xff') << "{}";
  const auto file = SafetensorsFile::Open(dir / "short.safetensors");
  CHECK_THAT(std::string(file.status().message()), Catch::Contains("header length"));
}

TEST_CASE("Safetensors: a file that cannot be opened for a moment is not called missing",
          "[checkpoint]") {
  const TempDir dir;
  REQUIRE(WriteSafetensors(dir / "a.safetensors", {{"w", at::ones({1})}}, {}).ok());
  rlimit limit{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  rlimit none = limit;
  none.rlim_cur = 0;
  REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
  const auto opened = SafetensorsFile::Open(dir / "a.safetensors");
  const auto digest = DigestFile(dir / "a.safetensors");
  REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  CHECK(opened.status().code() == absl::StatusCode::kUnavailable);
  CHECK(digest.status().code() == absl::StatusCode::kUnavailable);
  CHECK(SafetensorsFile::Open(dir / "b.safetensors").status().code() ==
        absl::StatusCode::kNotFound);
  CHECK(SafetensorsFile::Open(dir / "a.safetensors").ok());
}

TEST_CASE("Safetensors: an error of the disk is not a passing shortage", "[checkpoint]") {
  const auto code = [](int error) { return ReadError("file", "read", error).code(); };
  CHECK(code(EIO) == absl::StatusCode::kInternal);
  CHECK(code(EACCES) == absl::StatusCode::kInternal);
  CHECK(code(ENOMEM) == absl::StatusCode::kUnavailable);
  CHECK(code(ENOENT) == absl::StatusCode::kNotFound);
}

TEST_CASE("Safetensors: a duplicate name is not written", "[checkpoint]") {
  const TempDir dir;
  const at::Tensor one = at::ones({1});
  CHECK_FALSE(WriteSafetensors(dir / "d.safetensors", {{"w", one}, {"w", one}}, {}).ok());
}

}  // namespace
}  // namespace lathe::worker
