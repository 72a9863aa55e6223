#include "services/worker/tokenizer/tokenizer.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <catch2/catch.hpp>

namespace lathe::worker {
namespace {

// Returns the result of loading a tokenizer.json with the given text.
absl::StatusOr<Tokenizer> LoadText(const std::string& json) {
  std::string name = (std::filesystem::temp_directory_path() / "lathe-XXXXXX").string();
  const std::filesystem::path folder = mkdtemp(name.data());
  std::ofstream(folder / "tokenizer.json") << json;
  auto tokenizer = Tokenizer::Load(folder);
  std::filesystem::remove_all(folder);
  return tokenizer;
}

Tokenizer Loaded(const std::string& json) {
  auto tokenizer = LoadText(json);
  INFO(tokenizer.status());
  REQUIRE(tokenizer.ok());
  return *std::move(tokenizer);
}

std::string ErrorOf(const absl::Status& status) {
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

std::string Repeated(const std::string& text, int count) {
  std::string repeated;
  for (int i = 0; i < count; ++i) repeated += text;
  return repeated;
}

// Returns a small byte-level tokenizer.json with additional fields.
std::string ByteLevelFile(const std::string& fields, const std::string& model_fields = "") {
  return R"({"decoder": {"type": "ByteLevel"}, "model": {"type": "BPE",
             "vocab": {"a": 0, "b": 1, "ab": 2, "Ġ": 3, "1": 4}, "merges": ["a b"])" +
         model_fields + "}" + fields + "}";
}

// Returns a tokenizer.json with ▁ for spaces and Llama 2's normalizer and decoder.
std::string SpaceFile() {
  return R"({
    "added_tokens": [{"id": 0, "content": "<unk>", "special": true},
                     {"id": 1, "content": "<s>", "special": true}],
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
    "post_processor": {"type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                   {"Sequence": {"id": "A", "type_id": 0}}], "pair": [],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
    "decoder": {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
              "vocab": {"<unk>": 0, "<s>": 1, "<0xC3>": 2, "<0xA9>": 3, "▁": 4, "a": 5, "▁a": 6},
              "merges": [["▁", "a"]]}})";
}

TEST_CASE("Tokenizer: byte-level tokens and added tokens give their bytes", "[tokenizer]") {
  // "Ġ" is a space, "Ċ" a line feed, "Ã" and "©" the two bytes of "é".
  const Tokenizer tokenizer = Loaded(R"({
    "added_tokens": [{"id": 6, "content": "<|im_end|>", "special": true}],
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a": 0, "Ġb": 1, "Ċ": 2, "Ã": 3, "©": 4, "日": 5}}})");
  CHECK(tokenizer.Decode({0, 1, 2}) == "a b\n");
  CHECK(tokenizer.Decode({3, 4}) == "é");
  CHECK(tokenizer.Decode({0, 6, 1}) == "a<|im_end|> b");
  CHECK(tokenizer.Decode({0, 6, 1}, /*skip_special_tokens=*/true) == "a b");
  CHECK(tokenizer.TokenBytes(3) == "\xc3");
  CHECK(tokenizer.TokenBytes(5) == "日");
  CHECK(tokenizer.TokenBytes(7).empty());
  CHECK(tokenizer.TokenBytes(-1).empty());
  CHECK(tokenizer.num_ids() == 7);
}

TEST_CASE("Tokenizer: the first space is the text's own only behind a prompt", "[tokenizer]") {
  const Tokenizer tokenizer = Loaded(SpaceFile());
  CHECK(tokenizer.TokenBytes(6) == " a");
  CHECK(tokenizer.Decode({6, 6}) == "a a");
  CHECK(tokenizer.Decode({1, 6}) == "<s> a");
  CHECK(tokenizer.Decode({1, 6}, /*skip_special_tokens=*/true) == "a");
  CHECK(tokenizer.Decode({6, 2}) == "a\xc3");
}

TEST_CASE("Tokenizer: a first token of a Metaspace decoder has no space", "[tokenizer]") {
  const Tokenizer tokenizer = Loaded(R"({
    "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
    "model": {"type": "BPE", "vocab": {"▁a": 0, "▁▁": 1}, "merges": []}})");
  CHECK(tokenizer.Decode({0, 0}) == "a a");
  CHECK(tokenizer.Decode({1, 1}) == "  ");
  CHECK(tokenizer.TokenBytes(1) == "  ");
}

TEST_CASE("Tokenizer: characters without a token are their bytes, or unknown", "[tokenizer]") {
  const Tokenizer tokenizer = Loaded(SpaceFile());
  CHECK(*tokenizer.Encode("a é", false) == std::vector<int32_t>{6, 4, 2, 3});
  CHECK(*tokenizer.Encode("axya", false) == std::vector<int32_t>{6, 0, 5});
  CHECK(*tokenizer.Encode("a", true) == std::vector<int32_t>{1, 6});
  CHECK(*tokenizer.Encode("", true) == std::vector<int32_t>{1});
}

TEST_CASE("Tokenizer: a file that cannot decode is refused by name", "[tokenizer]") {
  const auto [json, message] = GENERATE(table<std::string, std::string>({
      {R"({"decoder":{"type":"ByteLevel"},"model":{"type":"Unigram","vocab":[]}})", "Unigram"},
      {R"({"decoder":{"type":"CTC"},"model":{"type":"BPE","vocab":{}}})",
       "decoder CTC is not supported"},
      {R"({"decoder":{"type":"ByteLevel","x":1},"model":{"type":"BPE","vocab":{}}})",
       "decoder ByteLevel: field x is not supported"},
      {R"({"decoder":{"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"ByteFallback"}]},
           "model":{"type":"BPE","vocab":{}}})",
       "decoder ByteFallback: is not supported behind"},
      {R"({"model":{"type":"BPE","vocab":{}}})", "decoder is missing"},
      {R"({"decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{"a":-1}}})",
       "token id is -1, expected 0 to 16777215"},
      {R"({"decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{"a":[[]]}}})",
       "token id is array"},
      {R"({"decoder":{"type":"ByteLevel"}})", "model is missing"},
      {"[]", "not a JSON object"},
      {"{", "not valid JSON at byte"},
  }));
  CHECK_THAT(ErrorOf(LoadText(json).status()), Catch::Contains(message));
}

TEST_CASE("Tokenizer: Encode returns the reason why it cannot encode", "[tokenizer]") {
  const auto [fields, message] = GENERATE(table<std::string, std::string>({
      {R"(,"normalizer":{"type":"Lowercase"})", "normalizer Lowercase is not supported"},
      {R"(,"pre_tokenizer":{"type":"Whitespace"})", "pre_tokenizer Whitespace is not supported"},
      {R"(,"pre_tokenizer":{"type":"Split","pattern":{"Regex":"a\\b"},"behavior":"Isolated","invert":false})",
       "pre_tokenizer Split: \"\\b\" in a pattern is not supported"},
      {R"(,"pre_tokenizer":{"type":"Split","pattern":{"Regex":"(a"},"behavior":"Isolated","invert":false})",
       "pattern cannot be compiled: missing closing parenthesis"},
      {R"(,"pre_tokenizer":{"type":"Split","pattern":{"String":""},"behavior":"Isolated","invert":false})",
       "pattern is neither"},
      {R"(,"pre_tokenizer":{"type":"Split","pattern":{"Regex":"a"},"behavior":"Sideways","invert":false})",
       "behavior Sideways is not supported"},
      {R"(,"normalizer":{"type":"Strip","strip_left":true,"strip_right":true},
           "pre_tokenizer":{"type":"Metaspace","replacement":"_","prepend_scheme":"first"})",
       "prepend_scheme first is not supported behind"},
      {R"(,"normalizer":{"type":"Sequence","normalizers":[)" + Repeated(R"({"type":"NFC"},)", 64) +
           R"({"type":"NFC"}]})",
       "normalizer has more than 64 components"},
      {R"(,"post_processor":{"type":"BertProcessing"})", "post_processor BertProcessing"},
      {R"(,"post_processor":{"type":"TemplateProcessing","single":[],"special_tokens":{}})",
       "single has no text"},
      {R"(,"surprise":1)", "field surprise is not supported"},
  }));
  const Tokenizer tokenizer = Loaded(ByteLevelFile(fields));
  CHECK(tokenizer.Decode({2}) == "ab");
  CHECK_THAT(ErrorOf(tokenizer.Encode("ab", false).status()), Catch::Contains(message));
}

TEST_CASE("Tokenizer: a model that would encode otherwise is named", "[tokenizer]") {
  const auto [fields, message] = GENERATE(table<std::string, std::string>({
      {R"(,"dropout":0.1)", "model: dropout is set"},
      {R"(,"end_of_word_suffix":"</w>")", "end_of_word_suffix is \"</w>\""},
      {R"(,"merges":["a 1"])", "model.merges[0]: \"a\" and \"1\""},
      {R"(,"merges":["a  b"])", "model.merges[0] is not a pair"},
      {R"(,"merges":[["a"]])", "model.merges[0] is not a pair"},
      {R"(,"temperature":1)", "model: field temperature is not supported"},
  }));
  const Tokenizer tokenizer = Loaded(ByteLevelFile("", fields));
  CHECK_THAT(ErrorOf(tokenizer.Encode("ab", false).status()), Catch::Contains(message));
}

TEST_CASE("Tokenizer: a decoder in a hundred thousand sequences is followed to its end",
          "[tokenizer]") {
  std::string before, after;
  for (int i = 0; i < 100'000; ++i) {
    before += R"({"type":"Sequence","decoders":[)";
    after += "]}";
  }
  const std::string decoder = before + R"({"type": "ByteLevel"})" + after;
  CHECK(LoadText(R"({"model": {"type": "BPE", "vocab": {"a": 0}}, "decoder": )" + decoder + "}")
            .ok());
}

// Without limits each pattern takes superlinear or exponential time in the text: hours here.
TEST_CASE("Tokenizer: a malicious pattern ends in an error", "[tokenizer]") {
  const std::string regex = GENERATE("(a+)+b", "(a|aa)+b", "a*b", "(?=(?:a*a*a*a*b)).", "a++b");
  const Tokenizer tokenizer = Loaded(ByteLevelFile(
      R"(,"pre_tokenizer":{"type":"Split","behavior":"Isolated","invert":false,
          "pattern":{"Regex":")" +
      regex + R"("}})"));
  CHECK(tokenizer.Encode("aaaab", false).ok());
  CHECK_THAT(ErrorOf(tokenizer.Encode(std::string(1 << 20, 'a'), false).status()),
             Catch::Contains("a pattern of tokenizer.json"));
}

TEST_CASE("Tokenizer: text that is too long or not UTF-8 is refused", "[tokenizer]") {
  const Tokenizer tokenizer = Loaded(ByteLevelFile(""));
  CHECK(ErrorOf(tokenizer.Encode("ab\xff", false).status()) == "text is not UTF-8 at byte 2");
  CHECK(ErrorOf(tokenizer.Encode(std::string((64 << 20) + 1, 'a'), false).status()) ==
        "text has 67108865 bytes, limit is 67108864");
}

TEST_CASE("Tokenizer: a normalizer cannot blow a text up without bound", "[tokenizer]") {
  const Tokenizer tokenizer = Loaded(
      ByteLevelFile(R"(,"normalizer":{"type":"Replace","pattern":{"String":"a"},"content":")" +
                    std::string(100'000, 'b') + R"("})"));
  CHECK(ErrorOf(tokenizer.Encode(std::string(1000, 'a'), false).status()) ==
        "text has 100001000 bytes, limit is 67108864");
}

TEST_CASE("Tokenizer: a folder without tokenizer.json is not found", "[tokenizer]") {
  CHECK(Tokenizer::Load("/nonexistent").status().code() == absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace lathe::worker
