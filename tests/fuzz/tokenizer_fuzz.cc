// Fuzzes tokenizer.json and encodes texts with it: unusual ones, and the file itself.
#include <string_view>
#include <vector>

#include "services/worker/tokenizer/tokenizer.h"
#include "tests/fuzz/fuzz_target.h"

namespace {

using lathe::worker::Tokenizer;

// Long runs of one character reach the limits of the patterns and the longest merges.
std::vector<std::string> Texts(const uint8_t* data, size_t size) {
  return {"", "The lathe's 123 parts\r\n\t  \u00e9e\u0301 \u5929\u5730 <|end|> <s>",
          std::string(2000, 'a'), std::string(2000, ' ') + "x", lathe::fuzz::Text(data, size)};
}

void Check(const Tokenizer& tokenizer, const std::string& text) {
  const auto ids = tokenizer.Encode(text, /*add_special_tokens=*/true);
  if (!ids.ok()) return;
  std::string bytes;
  for (const int32_t id : *ids) bytes += tokenizer.TokenBytes(id);
  lathe::fuzz::Expect(tokenizer.Decode(*ids).size() <= bytes.size(),
                      "a text of its own drops bytes, it adds none");
  lathe::fuzz::Expect(*ids == *tokenizer.Encode(text, true), "encoding twice gives the same ids");
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  lathe::fuzz::WriteFile(lathe::fuzz::Folder() / "tokenizer.json", data, size);
  const auto tokenizer = Tokenizer::Load(lathe::fuzz::Folder());
  if (!tokenizer.ok()) return 0;
  const std::vector<int32_t> ids = {-1, 0, 1, 2, 1000, INT32_MAX};
  tokenizer->Decode(ids);
  tokenizer->Decode(ids, /*skip_special_tokens=*/true);
  for (const std::string& text : Texts(data, size)) Check(*tokenizer, text);
  return 0;
}
