// absl::Status <-> grpc::Status <-> lathe.v1.Error: the only place that translates between them.
#pragma once

#include <grpcpp/support/status.h>

#include "absl/status/status.h"
#include "protos/lathe/v1/types.pb.h"

namespace lathe {

// Its details are a google.rpc.Status with one lathe.v1.Error, as gRPC libraries expect them.
grpc::Status ToGrpcStatus(const absl::Status& status);

// The code and message as received, the word and field from the details when there are any.
absl::Status FromGrpcStatus(const grpc::Status& status);

// The code is ErrorCode(status), the category IsUserError(status). `status` is not OK.
v1::Error ToErrorProto(const absl::Status& status);

// The status code is the one the word names ("not_found"); any other word is InvalidArgument for
// category user and Internal for the rest.
absl::Status FromErrorProto(const v1::Error& error);

}  // namespace lathe
