#include "services/engine/rpc/validate_chunks.h"

#include "absl/strings/str_format.h"
#include "services/engine/rpc/invalid.h"
#include "services/engine/rpc/packed_values.h"

namespace lathe::engine {

absl::StatusOr<int64_t> CheckChunks(const Chunks& chunks, int64_t vocab_size,
                                    const std::string& field) {
  int64_t position = 0;
  for (int i = 0; i < chunks.size(); ++i) {
    const v1::Chunk& chunk = chunks[i];
    if (chunk.chunk_case() != v1::Chunk::kTokens) {
      return Invalid("unsupported_chunk", field,
                     absl::StrFormat("%s: chunk %d is of kind '%s', this server takes "
                                     "encoded_text only",
                                     field, i, chunk.unsupported()));
    }
    if (chunk.tokens().size() % sizeof(int32_t) != 0) {
      return Invalid("bad_tensor", field,
                     absl::StrFormat("%s: chunk %d has %d bytes, not a multiple of 4", field, i,
                                     chunk.tokens().size()));
    }
    const PackedValues<int32_t> tokens(chunk.tokens());
    for (int64_t j = 0; j < tokens.size(); ++j, ++position) {
      if (tokens[j] < 0 || tokens[j] >= vocab_size) {
        return Invalid("bad_token", field,
                       absl::StrFormat("%s: token at position %d is %d, vocabulary size is %d",
                                       field, position, tokens[j], vocab_size));
      }
    }
  }
  return position;
}

}  // namespace lathe::engine
