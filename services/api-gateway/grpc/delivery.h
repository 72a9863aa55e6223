// When a client of gRPC has a result, seen from the gateway.
#pragma once

#include <google/protobuf/descriptor.h>
#include <grpcpp/support/byte_buffer.h>

#include <string>

namespace lathe::gateway {

// The delivery of one GetResult call. The engine counts a result as delivered when it has returned
// it, unless its caller acknowledges. So the gateway acknowledges for clients that do not, once the
// answer was written to them. Other methods deliver nothing.
class Delivery {
 public:
  // Takes the request of a call. Changes `message` so that the engine waits for Acknowledge. Has no
  // effect for other methods, for damaged messages and for clients that acknowledge themselves.
  void OnRequest(const google::protobuf::MethodDescriptor* method, grpc::ByteBuffer& message);
  // Takes the answer of the engine.
  void OnAnswer(grpc::ByteBuffer& message);

  // Request whose result was in the answer; empty: none.
  const std::string& request_id() const { return has_result_ ? request_id_ : none_; }

 private:
  static inline const std::string none_;

  std::string request_id_;
  bool has_result_ = false;
};

}  // namespace lathe::gateway
