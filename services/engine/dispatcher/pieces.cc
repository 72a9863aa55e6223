#include "services/engine/dispatcher/pieces.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/wire_format_lite.h"

namespace lathe::engine {
namespace {

using google::protobuf::internal::WireFormatLite;

std::string FieldHead(int field_number, size_t size) {
  std::string head;
  google::protobuf::io::StringOutputStream stream(&head);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.WriteTag(WireFormatLite::MakeTag(field_number, WireFormatLite::WIRETYPE_LENGTH_DELIMITED));
  coded.WriteVarint64(size);
  coded.Trim();
  return head;
}

}  // namespace

void MessageParts::Add(std::string part) { AddBorrowed(owned_.emplace_back(std::move(part))); }

void MessageParts::AddBorrowed(std::string_view part) {
  parts_.push_back(part);
  size_ += part.size();
}

void MessageParts::AddMessage(int field_number, MessageParts message) {
  Add(FieldHead(field_number, message.size_));
  owned_.splice(owned_.end(), message.owned_);
  parts_.insert(parts_.end(), message.parts_.begin(), message.parts_.end());
  size_ += message.size_;
}

std::vector<v1::EngineMessage> SplitIntoPieces(int64_t epoch, const MessageParts& serialized) {
  std::vector<v1::EngineMessage> messages;
  size_t left = serialized.size();
  const auto begin_piece = [&] {
    v1::EngineMessage& message = messages.emplace_back();
    message.set_epoch(epoch);
    message.mutable_piece()->mutable_data()->reserve(std::min(left, kPieceBytes));
  };
  begin_piece();
  for (std::string_view part : serialized.parts()) {
    while (!part.empty()) {
      if (messages.back().piece().data().size() == kPieceBytes) begin_piece();
      std::string& data = *messages.back().mutable_piece()->mutable_data();
      const std::string_view taken = part.substr(0, kPieceBytes - data.size());
      data.append(taken);
      part.remove_prefix(taken.size());
      left -= taken.size();
    }
  }
  messages.back().mutable_piece()->set_last(true);
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
