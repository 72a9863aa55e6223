#include "services/api-gateway/grpc/delivery.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/slice.h>

#include <utility>

#include "protos/lathe/v1/engine.pb.h"

namespace lathe::gateway {

using google::protobuf::internal::WireFormatLite;

namespace {

// A GetResultRequest has less than 100 bytes. Others are not parsed here, because their parts were
// not counted yet.
constexpr size_t kMaxRequestBytes = 4096;

}  // namespace

void Delivery::OnRequest(const google::protobuf::MethodDescriptor* method,
                         grpc::ByteBuffer& message) {
  const bool is_first = !std::exchange(has_request_, true);
  if (!is_first || message.Length() > kMaxRequestBytes) return;
  if (method == nullptr || method->input_type() != v1::GetResultRequest::descriptor()) return;
  v1::GetResultRequest request;
  {
    grpc::ProtoBufferReader reader(&message);
    if (!request.ParseFromZeroCopyStream(&reader) || request.acknowledges()) return;
  }
  request_id_ = request.request_id();
  request.set_acknowledges(true);
  const grpc::Slice slice(request.SerializeAsString());
  message = grpc::ByteBuffer(&slice, 1);
}

// Looks for the field without parsing it: results are large.
void Delivery::OnAnswer(grpc::ByteBuffer& message) {
  if (request_id_.empty()) return;
  grpc::ProtoBufferReader reader(&message);
  google::protobuf::io::CodedInputStream input(&reader);
  while (const uint32_t tag = input.ReadTag()) {
    if (WireFormatLite::GetTagFieldNumber(tag) == v1::GetResultResponse::kResultFieldNumber) {
      delivered_id_ = request_id_;
      return;
    }
    if (!WireFormatLite::SkipField(&input, tag)) return;
  }
}

}  // namespace lathe::gateway
