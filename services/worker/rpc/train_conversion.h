// Conversion of LoRA shapes and of forward and forward_backward requests, as the engine accepted
// them, to ops/.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "protos/lathe/v1/types.pb.h"
#include "protos/lathe/v1/worker.pb.h"
#include "services/worker/ops/training.h"

namespace lathe::worker {

LoraSpec ToLoraSpec(const lathe::v1::LoraConfig& lora);
lathe::v1::LoraConfig ToProto(const LoraSpec& spec);

// Fills in values that the request omits: ones for missing cross_entropy weights, the loss's
// default configuration, and each datum's loss_scale. The engine has validated
// the request. A request that still does not parse is InvalidArgument naming the datum and the
// field, so that it never ends this process.
absl::StatusOr<TrainRequest> ToTrainRequest(const lathe::v1::TrainItem& item);

// Returns the loss with its configuration applied over its defaults. InvalidArgument: an unknown
// loss, key or normalization.
absl::StatusOr<LossSpec> ToLossSpec(const lathe::v1::LossSpec& loss);

// Returns the token ids of all chunks, concatenated. InvalidArgument: a chunk that is not tokens.
absl::StatusOr<std::vector<int32_t>> ReadTokens(
    const google::protobuf::RepeatedPtrField<lathe::v1::Chunk>& chunks);

}  // namespace lathe::worker
