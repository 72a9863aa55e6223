// config.json of a Qwen3 dense model, and the part of the model that a rank holds.
#pragma once

#include <absl/status/statusor.h>
#include <filesystem>

#include "services/worker/spec/model_part.h"

namespace lathe::worker {

// Reads config.json and generation_config.json of `folder`. InvalidArgument, naming key and value,
// for an unknown key or an unsupported value (scaled rope, sliding windows, quantization): ignoring
// it would give wrong numbers.
absl::StatusOr<ModelSpec> ReadQwen3Config(const std::filesystem::path& folder);

// Returns the part of rank `place`; with one rank, WholeModel. InvalidArgument names a field of
// `spec` that cannot be divided.
absl::StatusOr<ModelPart> ShardQwen3(const ModelSpec& spec, const TpPlace& place);

}  // namespace lathe::worker
