// config.json of a Qwen3 dense model.
#pragma once

#include <absl/status/statusor.h>
#include <filesystem>

#include "services/worker/spec/decoder_spec.h"

namespace lathe::worker {

// Reads config.json and generation_config.json of `folder`. InvalidArgument, naming key and value,
// for an unknown key or an unsupported value (scaled rope, sliding windows, quantization): ignoring
// it would give wrong numbers.
absl::StatusOr<DecoderSpec> ReadQwen3Config(const std::filesystem::path& folder);

}  // namespace lathe::worker
