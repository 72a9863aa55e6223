// Fuzzes the config.json of a model folder.
#include "services/worker/models/families/families.h"
#include "tests/fuzz/fuzz_target.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  lathe::fuzz::WriteFile(lathe::fuzz::Folder() / "config.json", data, size);
  const auto spec = lathe::worker::ReadModelConfig(lathe::fuzz::Folder());
  if (!spec.ok()) return 0;
  const lathe::worker::AttentionSpec& attention = spec->layers.at(0).attention;
  lathe::fuzz::Expect(attention.num_heads % attention.num_kv_heads == 0 && spec->vocab_size > 0,
                      "a config that is read describes a model");
  return 0;
}
