// Messages of a callback stream that wait for their turn: gRPC takes one write at a time.
#pragma once

#include <grpcpp/impl/call_op_set.h>

#include <deque>
#include <utility>

namespace lathe::engine {

// Not thread-safe: the stream's mutex guards it. Write what Add and Written return.
template <typename Message>
class OutgoingMessages {
 public:
  // The message to write now; null while another one is being written.
  const Message* Add(Message message) {
    messages_.push_back(std::move(message));
    return messages_.size() == 1 ? &messages_.front() : nullptr;
  }
  // The front has been written: the next message to write, or null.
  const Message* Written() {
    messages_.pop_front();
    return messages_.empty() ? nullptr : &messages_.front();
  }
  // For the write of the front: one that others follow need not go out alone.
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
