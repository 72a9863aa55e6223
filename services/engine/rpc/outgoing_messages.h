// A queue of messages on a callback stream: gRPC accepts one write at a time.
#pragma once

#include <grpcpp/impl/call_op_set.h>

#include <deque>
#include <utility>

namespace lathe::engine {

// Not thread-safe: the stream's mutex must guard it. The stream writes the messages that Add and
// Written return.
template <typename Message>
class OutgoingMessages {
 public:
  // Adds a message. Returns it if it must be written now; null if another write is in progress.
  const Message* Add(Message message) {
    messages_.push_back(std::move(message));
    return messages_.size() == 1 ? &messages_.front() : nullptr;
  }
  // The message that is being written.
  const Message& front() const { return messages_.front(); }
  // Removes the front, which has been written. Returns the next message to write, or null.
  const Message* Written() {
    messages_.pop_front();
    return messages_.empty() ? nullptr : &messages_.front();
  }
  // Options for the write of the front. If messages follow, gRPC may buffer it.
  grpc::WriteOptions options() const {
    grpc::WriteOptions options;
    if (messages_.size() > 1) options.set_buffer_hint();
    return options;
  }
  size_t size() const { return messages_.size(); }

 private:
  std::deque<Message> messages_;  // the front is being written; references stay valid
};

}  // namespace lathe::engine
