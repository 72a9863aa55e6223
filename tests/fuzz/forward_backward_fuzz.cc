// Fuzzes a protobuf forward_backward from the wire to the worker's structs.
#include "protos/lathe/v1/worker.pb.h"
#include "services/api-gateway/wire/wire.h"
#include "services/engine/rpc/validate_training.h"
#include "services/worker/rpc/train_conversion.h"
#include "tests/fuzz/fuzz_target.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr lathe::engine::ModelLimits kLimits{.max_context_length = 64, .vocab_size = 768};
  lathe::v1::TrainItem item;
  lathe::v1::ForwardBackwardRequest& request = *item.mutable_request();
  const absl::Status read =
      lathe::gateway::ForwardBackwardFromWire(lathe::fuzz::Text(data, size), &request);
  if (!read.ok()) return 0;
  if (!lathe::engine::ValidateForwardBackward(request, kLimits).ok()) return 0;
  const auto converted = lathe::worker::ToTrainRequest(item);
  lathe::fuzz::Expect(converted.ok(), "the worker can read what the engine accepts: " +
                                          std::string(converted.status().message()));
  return 0;
}
