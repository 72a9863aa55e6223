// lathe.v1 engine messages -> commands of ops/.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "protos/lathe/v1/worker.pb.h"
#include "services/worker/ops/commands.h"
#include "services/worker/ops/sampling.h"
#include "services/worker/rpc/request_table.h"

namespace lathe::worker {

// One command of an engine message, with the data to answer it. `request_id` is empty if no answer
// is expected. A train request is a TrainBatch of one.
struct Incoming {
  std::string request_id;
  RequestInfo info;
  absl::StatusOr<Command> command;  // an error is sent as the answer
};

// Returns the commands of `message` in order. Messages about the stream itself have none.
std::vector<Incoming> ToCommands(const lathe::v1::EngineMessage& message);

// Decodes the command that rank 0 got as `encoded`, a serialized EngineMessage. Its train requests
// form one batch. Internal: `encoded` is not such a message.
absl::StatusOr<Command> DecodeCommand(const std::string& encoded);

// The engine has set `max_tokens` and `seed`. InvalidArgument: the prompt has chunks other than
// tokens.
absl::StatusOr<SampleRequest> ToSampleRequest(const lathe::v1::Sample& sample);

}  // namespace lathe::worker
