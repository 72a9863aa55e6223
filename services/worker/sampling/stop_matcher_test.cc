#include "services/worker/sampling/stop_matcher.h"

#include <fstream>

#include <catch2/catch.hpp>

#include "services/worker/testing/test_temp_dir.h"

namespace lathe::worker {
namespace {

const std::vector<int64_t> kEos = {9};

// Has tokens 0 "a", 1 "b", 2 "ab", 3 " U", 4 and 5 the two bytes of "é", 6 "<|end|>".
Tokenizer SmallTokenizer() {
  const TempDir dir;
  std::ofstream(dir / "tokenizer.json") << R"({
    "added_tokens": [{"id": 6, "content": "<|end|>", "special": true}],
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a":0,"b":1,"ab":2,"ĠU":3,"Ã":4,"©":5}}})";
  return *Tokenizer::Load(dir.path());
}

// Returns the index of the token that ends the sequence, -1 if none does.
int StopsAt(const SamplingParams& params, const std::vector<int32_t>& tokens) {
  const Tokenizer tokenizer = SmallTokenizer();
  StopMatcher stop(params, kEos, &tokenizer);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (stop.Append(tokens[i])) return static_cast<int>(i);
  }
  return -1;
}

TEST_CASE("Stop: end of sequence ends, with other stops too, unless it is ignored", "[sampling]") {
  CHECK(StopsAt({}, {0, 9, 0}) == 1);
  CHECK(StopsAt({.stop_tokens = {1}}, {0, 9, 1}) == 1);
  CHECK(StopsAt({.stop_strings = {"zz"}}, {0, 9, 1}) == 1);
  CHECK(StopsAt({.ignore_eos = true}, {0, 9, 1}) == -1);
}

TEST_CASE("Stop: a stop token ends", "[sampling]") {
  CHECK(StopsAt({.stop_tokens = {3, 1}}, {0, 2, 1, 0}) == 2);
}

TEST_CASE("Stop: strings are found across token borders and inside tokens", "[sampling]") {
  CHECK(StopsAt({.stop_strings = {"ba"}}, {0, 1, 0, 0}) == 2);
  CHECK(StopsAt({.stop_strings = {"ba"}}, {2, 2, 0}) == 1);
  CHECK(StopsAt({.stop_strings = {"b U"}}, {2, 3}) == 1);
  CHECK(StopsAt({.stop_strings = {"é"}}, {4, 0, 4, 5}) == 3);
  CHECK(StopsAt({.stop_strings = {"<|end|>"}}, {0, 6}) == 1);
  // A stop string may be one byte of a character, which is not valid UTF-8.
  CHECK(StopsAt({.stop_strings = {"\xa9"}}, {0, 4, 5}) == 2);
  CHECK(StopsAt({.stop_strings = {"a\xc3"}}, {0, 4, 5}) == 1);
  CHECK(StopsAt({.stop_strings = {"abababab", "bb"}}, {2, 2, 2, 0, 1, 1, 0}) == 4);
  CHECK(StopsAt({.stop_strings = {"ababab"}}, {2, 0, 1, 1, 2, 0, 1, 2}) == 7);
}

}  // namespace
}  // namespace lathe::worker
