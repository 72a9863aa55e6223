#include "libs/common/rpc/status.h"

#include <string>
#include <utility>

#include "libs/common/errors.h"
#include "protos/google/rpc/error_details.pb.h"
#include "protos/google/rpc/status.pb.h"

namespace lathe {

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  google::rpc::Status details;
  details.set_code(static_cast<int>(status.code()));
  details.set_message(std::string(status.message()));
  details.add_details()->PackFrom(ToErrorProto(status));
  if (const absl::Duration wait = RetryAfter(status); wait > absl::ZeroDuration()) {
    google::rpc::RetryInfo info;
    info.mutable_retry_delay()->set_seconds(
        absl::ToInt64Seconds(absl::Ceil(wait, absl::Seconds(1))));
    details.add_details()->PackFrom(info);
  }
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()),
                      details.SerializeAsString());
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  absl::Status translated(static_cast<absl::StatusCode>(status.error_code()),
                          status.error_message());
  google::rpc::Status details;
  if (!details.ParseFromString(status.error_details())) return translated;
  for (const google::protobuf::Any& detail : details.details()) {
    v1::Error error;
    google::rpc::RetryInfo info;
    if (detail.UnpackTo(&error)) {
      translated = WithDetail(std::move(translated), error.code(), error.field());
    } else if (detail.UnpackTo(&info)) {
      translated =
          WithRetryAfter(std::move(translated), absl::Seconds(info.retry_delay().seconds()));
    }
  }
  return translated;
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
  absl::StatusCode code = StatusCodeFromName(error.code());
  if (code == absl::StatusCode::kUnknown || code == absl::StatusCode::kOk) {
    code = error.category() == v1::ERROR_CATEGORY_USER ? absl::StatusCode::kInvalidArgument
                                                       : absl::StatusCode::kInternal;
  }
  return WithDetail(absl::Status(code, error.message()), error.code(), error.field());
}

}  // namespace lathe
