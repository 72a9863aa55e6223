// Fuzzes decompression with a size limit.
#include "services/api-gateway/http/zstd.h"
#include "tests/fuzz/fuzz_target.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr int64_t kMaxBytes = 1 << 20;
  const absl::StatusOr<std::string> inflated =
      lathe::gateway::InflateZstd(lathe::fuzz::Text(data, size), {.max_bytes = kMaxBytes});
  if (inflated.ok()) {
    lathe::fuzz::Expect(inflated->size() <= kMaxBytes, "what is inflated stays within its limit");
  }
  return 0;
}
