#include "libs/common/rpc/status.h"

#include <string>

#include "libs/common/errors.h"

namespace lathe {

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()),
                      ToErrorProto(status).SerializeAsString());
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const absl::Status plain(static_cast<absl::StatusCode>(status.error_code()),
                           status.error_message());
  v1::Error error;
  if (status.error_details().empty() || !error.ParseFromString(status.error_details())) {
    return plain;
  }
  return WithDetail(plain, error.code(), error.field());
}

v1::Error ToErrorProto(const absl::Status& status) {
  v1::Error error;
  error.set_code(ErrorCode(status));
  error.set_category(IsUserError(status) ? v1::ERROR_CATEGORY_USER : v1::ERROR_CATEGORY_SERVER);
  error.set_field(ErrorField(status));
  error.set_message(std::string(status.message()));
  return error;
}

absl::Status FromErrorProto(const v1::Error& error) {
  absl::StatusCode code = StatusCodeFromWord(error.code());
  if (code == absl::StatusCode::kUnknown || code == absl::StatusCode::kOk) {
    code = error.category() == v1::ERROR_CATEGORY_USER ? absl::StatusCode::kInvalidArgument
                                                       : absl::StatusCode::kInternal;
  }
  return WithDetail(absl::Status(code, error.message()), error.code(), error.field());
}

}  // namespace lathe
