// Large messages travel in pieces, so that a short one never waits behind 100 MB.
#pragma once

#include <list>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "protos/lathe/v1/worker.pb.h"

namespace lathe::engine {

inline constexpr size_t kPieceBytes = 1 << 20;
// Above it the stream is broken off: protobuf parses no more.
inline constexpr size_t kMaxMessageBytes = (size_t{1} << 31) - 1;

// A serialized message in parts, so that large ones among them are copied once.
class MessageParts {
 public:
  void Add(std::string part);
  // `part` must outlive this.
  void AddBorrowed(std::string_view part);
  // As the field `field_number`, a message.
  void AddMessage(int field_number, MessageParts message);

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const std::vector<std::string_view>& parts() const { return parts_; }

 private:
  std::list<std::string> owned_;  // does not move what is in it
  std::vector<std::string_view> parts_;
  size_t size_ = 0;
};

// The serialized message as pieces of at most kPieceBytes, in order, all with `epoch`.
std::vector<v1::EngineMessage> SplitIntoPieces(int64_t epoch, const MessageParts& serialized);

// Puts a worker's pieces together. Used by one thread at a time.
class PieceAssembler {
 public:
  // True: `message` was complete, or is now what its pieces stood for. False: more must come.
  absl::StatusOr<bool> Complete(v1::WorkerMessage& message);

 private:
  std::string collected_;
};

}  // namespace lathe::engine
