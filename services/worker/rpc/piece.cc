#include "services/worker/rpc/piece.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace lathe::worker {
namespace {

// Protobuf's limit for parsing.
constexpr size_t kMaxMessageBytes = (size_t{1} << 31) - 1;

}  // namespace

std::vector<lathe::v1::WorkerMessage> SplitMessage(lathe::v1::WorkerMessage message,
                                                   size_t max_piece_bytes) {
  std::vector<lathe::v1::WorkerMessage> messages;
  if (message.has_piece() || message.ByteSizeLong() <= max_piece_bytes) {
    messages.push_back(std::move(message));
    return messages;
  }
  const std::string data = message.SerializeAsString();
  for (size_t begin = 0; begin < data.size(); begin += max_piece_bytes) {
    lathe::v1::WorkerMessage& part = messages.emplace_back();
    part.set_epoch(message.epoch());
    part.mutable_piece()->set_data(data.substr(begin, max_piece_bytes));
    part.mutable_piece()->set_last(begin + max_piece_bytes >= data.size());
  }
  return messages;
}

absl::StatusOr<bool> PieceJoiner::Join(lathe::v1::EngineMessage* message) {
  if (!message->has_piece()) return true;
  const lathe::v1::Piece& piece = message->piece();
  if (data_.size() + piece.data().size() > kMaxMessageBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("message in pieces is more than ", kMaxMessageBytes, " bytes"));
  }
  data_ += piece.data();
  if (!piece.last()) return false;
  const std::string whole = std::exchange(data_, {});
  message->Clear();
  if (!message->ParseFromString(whole)) {
    return absl::DataLossError(absl::StrCat(whole.size(), " bytes in pieces are no message"));
  }
  return true;
}

}  // namespace lathe::worker
