// Converts absl::Status <-> grpc::Status <-> lathe.v1.Error. No other code converts between them.
#pragma once

#include <grpcpp/support/status.h>

#include "absl/status/status.h"
#include "protos/lathe/v1/types.pb.h"

namespace lathe {

// The details are a google.rpc.Status with one lathe.v1.Error, which gRPC libraries expect.
grpc::Status ToGrpcStatus(const absl::Status& status);

// Keeps code and message. Takes the word and field from the details, if there are any.
absl::Status FromGrpcStatus(const grpc::Status& status);

// Sets the code to ErrorCode(status) and the category from IsUserError(status). `status` is not OK.
v1::Error ToErrorProto(const absl::Status& status);

// The word names the status code ("not_found"). Any other word gives InvalidArgument for category
// user and Internal for other categories.
absl::Status FromErrorProto(const v1::Error& error);

}  // namespace lathe
