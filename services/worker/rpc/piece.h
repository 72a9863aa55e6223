// Messages larger than 1 MiB travel as pieces, so that a small message never waits behind a large
// one. Free of gRPC: works on any pair of message types with `epoch` and `piece`.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "protos/lathe/v1/worker.pb.h"

namespace lathe::worker {

inline constexpr size_t kMaxPieceBytes = size_t{1} << 20;

// `message` itself, or its pieces in order when it is larger than `max_piece_bytes`. Pieces carry
// the message's epoch.
std::vector<lathe::v1::WorkerMessage> SplitMessage(lathe::v1::WorkerMessage message,
                                                   size_t max_piece_bytes = kMaxPieceBytes);

// Puts the engine's messages together again.
class PieceJoiner {
 public:
  // True: `*message` is whole now (it was no piece, or the last one). False: more must come.
  // Anything between the pieces of one message passes through. ResourceExhausted: 2 GiB or more;
  // DataLoss: the pieces are no message.
  absl::StatusOr<bool> Join(lathe::v1::EngineMessage* message);

 private:
  std::string data_;
};

}  // namespace lathe::worker
