// Validation of provenance spans (tinker-api 15.4) and ratio masks, which mark sampled tokens.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "protos/lathe/v1/types.pb.h"

namespace lathe::engine {

// Requires both span lists of a datum, each covering `num_tokens` tokens exactly. `advantages`
// [num_tokens] must be 0 where loss_fn_input_spans mark a prompt token. Errors name the datum by
// `prefix`, e.g. "data[3]", and the loss by `loss`. Error: bad_provenance.
absl::Status CheckProvenance(const v1::Datum& datum, const v1::Tensor& advantages,
                             int64_t num_tokens, const std::string& prefix,
                             const std::string& loss);

// Requires every value of a sequence_ratio_mask to be 0 or 1. One must be 1, unless all advantages
// are 0. Error: bad_loss_input.
absl::Status CheckRatioMask(const v1::Tensor& mask, const v1::Tensor& advantages,
                            const std::string& field);

}  // namespace lathe::engine
