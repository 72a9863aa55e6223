// Fuzzes names, tinker:// paths and request targets.
#include "services/api-gateway/http/read_head.h"
#include "services/engine/rpc/validate_names.h"
#include "tests/fuzz/fuzz_target.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text = lathe::fuzz::Text(data, size);
  const auto is_clean = [](std::string_view name) {
    return name.find('/') == name.npos && name.find('\0') == name.npos && name.front() != '.';
  };
  if (lathe::engine::ValidateName(text, "path").ok()) {
    lathe::fuzz::Expect(!text.empty() && text.size() <= 128 && is_clean(text),
                        "a name is one harmless component of a path");
  }
  if (lathe::engine::ValidateTinkerPath(text, "path").ok()) {
    lathe::fuzz::Expect(text.starts_with("tinker://") && is_clean(text.substr(text.rfind('/') + 1)),
                        "the last part of a tinker path is a name");
  }
  lathe::gateway::ParseTarget(text).IgnoreError();
  return 0;
}
