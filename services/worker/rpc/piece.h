// Splits messages larger than 1 MiB into pieces, so that a small message never waits behind a large
// one. Does not include gRPC: works on message types with `epoch` and `piece`.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "protos/lathe/v1/worker.pb.h"

namespace lathe::worker {

inline constexpr size_t kMaxPieceBytes = size_t{1} << 20;

// Returns `message`, or its pieces in order if it is larger than `max_piece_bytes`. Pieces carry
// the message's epoch.
std::vector<lathe::v1::WorkerMessage> SplitMessage(lathe::v1::WorkerMessage message,
                                                   size_t max_piece_bytes = kMaxPieceBytes);

// Joins the pieces of the engine's messages.
class PieceJoiner {
 public:
  // Returns true if `*message` is whole now: it was no piece, or the last one. Returns false if
  // more pieces must follow. Messages between the pieces of another one pass through.
  // ResourceExhausted: the message is 2 GiB or more. DataLoss: the pieces do not form a message.
  absl::StatusOr<bool> Join(lathe::v1::EngineMessage* message);

 private:
  std::string data_;
};

}  // namespace lathe::worker
