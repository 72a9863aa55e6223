// Validation of prompts and training inputs.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "protos/lathe/v1/types.pb.h"

namespace lathe::engine {

using Chunks = google::protobuf::RepeatedPtrField<v1::Chunk>;

// Returns the number of tokens in all chunks; each must be below `vocab_size`. `field` names the
// chunks in errors: unsupported_chunk (with its wire name), bad_tensor, bad_token (with the
// position).
absl::StatusOr<int64_t> CheckChunks(const Chunks& chunks, int64_t vocab_size,
                                    const std::string& field);

}  // namespace lathe::engine
