// Tells the engine when the result of a gRPC client has left the gateway.
#pragma once

#include <google/protobuf/descriptor.h>
#include <grpcpp/support/byte_buffer.h>

#include <string>

namespace lathe::gateway {

// The delivery of one GetResult call. The engine counts a result as delivered when it has returned
// it, unless its caller acknowledges. So the gateway acknowledges for clients that do not, once the
// answer was written to them. It leaves other calls alone: a SampleStream's result counts as
// delivered once the engine has written it to the gateway.
class Delivery {
 public:
  // Takes the messages of a client. Changes the first one so that the engine waits for an
  // acknowledgement. Has no effect for other methods, for damaged or oversized messages, and for
  // clients that acknowledge themselves.
  void OnRequest(const google::protobuf::MethodDescriptor* method, grpc::ByteBuffer& message);
  // Takes the answer of the engine.
  void OnAnswer(grpc::ByteBuffer& message);

  // Request whose result was in the answer; empty: none.
  const std::string& request_id() const { return delivered_id_; }

 private:
  bool has_request_ = false;
  std::string request_id_;  // set by the first message only
  std::string delivered_id_;
};

}  // namespace lathe::gateway
