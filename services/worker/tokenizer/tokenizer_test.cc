#include "services/worker/tokenizer/tokenizer.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <catch2/catch.hpp>

namespace lathe::worker {
namespace {

// A folder whose tokenizer.json has the given text.
class TokenizerFolder {
 public:
  explicit TokenizerFolder(const std::string& json) {
    std::string name = (std::filesystem::temp_directory_path() / "lathe-XXXXXX").string();
    path_ = mkdtemp(name.data());
    std::ofstream(path_ / "tokenizer.json") << json;
  }
  ~TokenizerFolder() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

TEST_CASE("Tokenizer: byte-level tokens and added tokens give their bytes", "[tokenizer]") {
  // "Ġ" is a space, "Ċ" a line feed, "Ã" and "©" the two bytes of "é".
  const TokenizerFolder folder(R"({
    "added_tokens": [{"id": 6, "content": "<|im_end|>", "special": true}],
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a": 0, "Ġb": 1, "Ċ": 2, "Ã": 3, "©": 4, "日": 5}}})");
  const auto tokenizer = Tokenizer::Load(folder.path());
  REQUIRE(tokenizer.ok());
  CHECK(tokenizer->Decode({0, 1, 2}) == "a b\n");
  CHECK(tokenizer->Decode({3, 4}) == "é");
  CHECK(tokenizer->TokenBytes(3) == "\xc3");
  CHECK(tokenizer->TokenBytes(5) == "日");
  CHECK(tokenizer->TokenBytes(6) == "<|im_end|>");
  CHECK(tokenizer->TokenBytes(7).empty());
  CHECK(tokenizer->TokenBytes(-1).empty());
}

TEST_CASE("Tokenizer: what is not byte-level BPE is refused by name", "[tokenizer]") {
  struct Case {
    std::string json;
    std::string message;
  };
  const Case bad = GENERATE(
      Case{R"({"decoder":{"type":"ByteLevel"},"model":{"type":"Unigram","vocab":[]}})", "Unigram"},
      Case{R"({"decoder":{"type":"Metaspace"},"model":{"type":"BPE","vocab":{}}})", "decoder"},
      Case{R"({"decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{"a":-1}}})", "-1"},
      Case{R"({"decoder":{"type":"ByteLevel"}})", "model"}, Case{"{", "parse error"});
  const TokenizerFolder folder(bad.json);
  const auto tokenizer = Tokenizer::Load(folder.path());
  REQUIRE(tokenizer.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(tokenizer.status().message()), Catch::Contains(bad.message));
}

TEST_CASE("Tokenizer: a decoder in a hundred thousand sequences is followed to its end",
          "[tokenizer]") {
  std::string decoder = R"({"type": "ByteLevel"})";
  std::string before, after;
  for (int i = 0; i < 100'000; ++i) {
    before += R"({"type":"Sequence","decoders":[)";
    after += "]}";
  }
  const TokenizerFolder folder(R"({"model": {"type": "BPE", "vocab": {"a": 0}}, "decoder": )" +
                               before + decoder + after + "}");
  CHECK(Tokenizer::Load(folder.path()).ok());
}

TEST_CASE("Tokenizer: a folder without tokenizer.json is not found", "[tokenizer]") {
  CHECK(Tokenizer::Load("/nonexistent").status().code() == absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace lathe::worker
