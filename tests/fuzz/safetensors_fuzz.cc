// Fuzzes safetensors files.
#include "services/worker/formats/safetensors/safetensors.h"
#include "tests/fuzz/fuzz_target.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::filesystem::path path = lathe::fuzz::Folder() / "weights.safetensors";
  lathe::fuzz::WriteFile(path, data, size);
  const auto file = lathe::worker::SafetensorsFile::Open(path);
  if (!file.ok()) return 0;
  for (const std::string& name : file->names()) {
    lathe::fuzz::Expect(file->Read(name).ok(), "every tensor of a file that opens can be read");
  }
  return 0;
}
