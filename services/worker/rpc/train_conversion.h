// forward and forward_backward requests as accepted by the engine -> ops.h.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "protos/lathe/v1/worker.pb.h"
#include "services/worker/ops.h"

namespace lathe::worker {

// Fills what the request left open: ones for missing cross_entropy weights, the loss's default
// configuration (tinker-api 16.1), each datum's loss_scale. The engine validated the request; what
// does not parse all the same is InvalidArgument naming the datum and the field, so that a bad
// request never ends us.
absl::StatusOr<TrainRequest> ToTrainRequest(const lathe::v1::TrainItem& item);

// The loss with its configuration over its defaults. InvalidArgument: an unknown loss, key or
// normalization.
absl::StatusOr<LossSpec> ToLossSpec(const lathe::v1::LossSpec& loss);

// Token ids of the chunks, end to end. InvalidArgument: a chunk that is not tokens.
absl::StatusOr<std::vector<int32_t>> ReadTokens(
    const google::protobuf::RepeatedPtrField<lathe::v1::Chunk>& chunks);

}  // namespace lathe::worker
