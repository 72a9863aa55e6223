// lathe.v1 engine messages -> ops.h commands.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "protos/lathe/v1/worker.pb.h"
#include "services/worker/ops.h"
#include "services/worker/rpc/request_book.h"

namespace lathe::worker {

// One command of an engine message, and what is needed to answer it. `request_id` is empty when
// nobody waits for an answer. A train request is a TrainBatch of one.
struct Incoming {
  std::string request_id;
  RequestInfo info;
  absl::StatusOr<Command> command;  // an error is the answer
};

// Commands of `message` in order; none for messages that are about the stream itself.
std::vector<Incoming> ToCommands(const lathe::v1::EngineMessage& message);

// The command that those of `encoded`, a serialized EngineMessage, make together: its train
// requests are one batch. Of what a rank that leads was told; Internal: it is no such message.
absl::StatusOr<Command> DecodeCommand(const std::string& encoded);

// `max_tokens` and `seed` were fixed by the engine. InvalidArgument: a prompt that is not tokens.
absl::StatusOr<SampleRequest> ToSampleRequest(const lathe::v1::Sample& sample);

}  // namespace lathe::worker
