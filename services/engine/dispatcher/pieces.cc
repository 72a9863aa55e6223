#include "services/engine/dispatcher/pieces.h"

#include "absl/status/status.h"

namespace lathe::engine {

std::vector<v1::EngineMessage> SplitIntoPieces(int64_t epoch, std::string_view serialized) {
  std::vector<v1::EngineMessage> messages;
  do {
    const std::string_view data = serialized.substr(0, kPieceBytes);
    serialized.remove_prefix(data.size());
    v1::EngineMessage& message = messages.emplace_back();
    message.set_epoch(epoch);
    message.mutable_piece()->set_data(data.data(), data.size());
    message.mutable_piece()->set_last(serialized.empty());
  } while (!serialized.empty());
  return messages;
}

absl::StatusOr<bool> PieceAssembler::Complete(v1::WorkerMessage& message) {
  if (!message.has_piece()) return true;
  if (collected_.size() + message.piece().data().size() > kMaxMessageBytes) {
    return absl::ResourceExhaustedError("a message in pieces is too large");
  }
  collected_ += message.piece().data();
  if (!message.piece().last()) return false;
  std::string serialized;
  serialized.swap(collected_);
  if (!message.ParseFromString(serialized) || message.has_piece()) {
    return absl::InvalidArgumentError("a message in pieces cannot be parsed");
  }
  return true;
}

}  // namespace lathe::engine
