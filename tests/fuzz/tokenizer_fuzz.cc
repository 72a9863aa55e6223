// tokenizer.json.
#include "services/worker/tokenizer/tokenizer.h"
#include "tests/fuzz/fuzz_target.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  lathe::fuzz::WriteFile(lathe::fuzz::Folder() / "tokenizer.json", data, size);
  const auto tokenizer = lathe::worker::Tokenizer::Load(lathe::fuzz::Folder());
  if (!tokenizer.ok()) return 0;
  tokenizer->Decode({-1, 0, 1, 2, 1000, INT32_MAX});
  return 0;
}
