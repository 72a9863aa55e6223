// Splits large messages into pieces, so that a short message never waits behind 100 MB.
#pragma once

#include <list>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "protos/lathe/v1/worker.pb.h"

namespace lathe::engine {

inline constexpr size_t kPieceBytes = 1 << 20;
// Upper bound of a joined message, which protobuf cannot parse beyond. A larger one ends the
// stream.
inline constexpr size_t kMaxMessageBytes = (size_t{1} << 31) - 1;

// Parts of a serialized message. Nested messages are assembled with only one copy of large parts.
class MessageParts {
 public:
  void Add(std::string part);
  // `part` must outlive this.
  void AddBorrowed(std::string_view part);
  // Adds `message` as the submessage `field_number`.
  void AddMessage(int field_number, MessageParts message);

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const std::vector<std::string_view>& parts() const { return parts_; }

 private:
  std::list<std::string> owned_;  // a list, so that elements never move
  std::vector<std::string_view> parts_;
  size_t size_ = 0;
};

// Splits the serialized message into pieces of at most kPieceBytes, in order, all with `epoch`.
std::vector<v1::EngineMessage> SplitIntoPieces(int64_t epoch, const MessageParts& serialized);

// Joins a worker's pieces. Used by one thread at a time.
class PieceAssembler {
 public:
  // Returns true if `message` was complete, or is now the message joined from its pieces. Returns
  // false if more pieces must follow.
  absl::StatusOr<bool> Complete(v1::WorkerMessage& message);

 private:
  std::string collected_;
};

}  // namespace lathe::engine
