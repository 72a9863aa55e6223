// The model families: each turns a config.json into a spec with its tables, in a file of its own.
#pragma once

#include <filesystem>

#include <absl/status/statusor.h>

#include "services/worker/models/families/config_reader.h"
#include "services/worker/spec/decoder_spec.h"

namespace lathe::worker {

absl::StatusOr<DecoderSpec> ReadGemma3(ConfigReader& config);
absl::StatusOr<DecoderSpec> ReadLlama(ConfigReader& config);
absl::StatusOr<DecoderSpec> ReadMistral(ConfigReader& config);
absl::StatusOr<DecoderSpec> ReadQwen2(ConfigReader& config);
absl::StatusOr<DecoderSpec> ReadQwen3(ConfigReader& config);

// Reads config.json and generation_config.json of `folder`. NotFound if the former is missing.
// InvalidArgument names a family, key or value that is not supported.
absl::StatusOr<DecoderSpec> ReadModelConfig(const std::filesystem::path& folder);

}  // namespace lathe::worker
