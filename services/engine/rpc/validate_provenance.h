// Provenance spans of a datum (tinker-api 15.4) and the other ways a loss says what was sampled.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "protos/lathe/v1/types.pb.h"

namespace lathe::engine {

// The datum has both lists of spans, each tiling `num_tokens` tokens, and `advantages` [num_tokens]
// is zero wherever loss_fn_input_spans say that the token was not sampled. `prefix` names the datum
// in errors, e.g. "data[3]", and `loss` what asks for it. Errors: bad_provenance.
absl::Status CheckProvenance(const v1::Datum& datum, const v1::Tensor& advantages,
                             int64_t num_tokens, const std::string& prefix,
                             const std::string& loss);

// A sequence_ratio_mask is 1 or 0 everywhere, and 1 somewhere unless no advantage counts.
// Errors: bad_loss_input.
absl::Status CheckRatioMask(const v1::Tensor& mask, const v1::Tensor& advantages,
                            const std::string& field);

}  // namespace lathe::engine
