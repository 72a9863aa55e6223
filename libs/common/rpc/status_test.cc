#include "libs/common/rpc/status.h"

#include <catch2/catch.hpp>

#include "libs/common/errors.h"
#include "protos/google/rpc/status.pb.h"

namespace lathe {
namespace {

absl::Status SeqReused() {
  return WithDetail(absl::InvalidArgumentError("seq_id 4 was used for another request"),
                    "seq_id_reused", "seq_id");
}

TEST_CASE("A status keeps code, message, word and field over gRPC", "[rpc]") {
  const absl::Status back = FromGrpcStatus(ToGrpcStatus(SeqReused()));
  CHECK(back == SeqReused());
  CHECK(ErrorCode(back) == "seq_id_reused");
  CHECK(ErrorField(back) == "seq_id");
  CHECK(FromGrpcStatus(ToGrpcStatus(absl::OkStatus())).ok());
}

TEST_CASE("A gRPC status with our error carries its category", "[rpc]") {
  google::rpc::Status details;
  REQUIRE(details.ParseFromString(ToGrpcStatus(SeqReused()).error_details()));
  CHECK(details.code() == grpc::StatusCode::INVALID_ARGUMENT);
  CHECK(details.message() == "seq_id 4 was used for another request");
  REQUIRE(details.details_size() == 1);
  v1::Error error;
  REQUIRE(details.details(0).UnpackTo(&error));
  CHECK(error.category() == v1::ERROR_CATEGORY_USER);
  CHECK(error.message() == "seq_id 4 was used for another request");
  CHECK(ToErrorProto(absl::InternalError("x")).category() == v1::ERROR_CATEGORY_SERVER);
}

TEST_CASE("The retry delay is sent over gRPC as its libraries expect it", "[rpc]") {
  const absl::Status limited =
      WithRetryAfter(WithDetail(absl::ResourceExhaustedError("slow down"), "rate_limit"),
                     absl::Milliseconds(16'200));
  const absl::Status back = FromGrpcStatus(ToGrpcStatus(limited));
  CHECK(ErrorCode(back) == "rate_limit");
  CHECK(RetryAfter(back) == absl::Seconds(17));
  CHECK(RetryAfter(FromGrpcStatus(ToGrpcStatus(SeqReused()))) == absl::ZeroDuration());
  google::rpc::Status details;
  REQUIRE(details.ParseFromString(ToGrpcStatus(limited).error_details()));
  REQUIRE(details.details_size() == 2);
  CHECK(details.details(1).type_url() == "type.googleapis.com/google.rpc.RetryInfo");
}

TEST_CASE("A gRPC status without details is still translated", "[rpc]") {
  const absl::Status status =
      FromGrpcStatus(grpc::Status(grpc::StatusCode::UNAVAILABLE, "connection refused"));
  CHECK(status == absl::UnavailableError("connection refused"));
  CHECK(ErrorCode(status) == "unavailable");
}

TEST_CASE("A stored error becomes a status of its category", "[rpc]") {
  CHECK(FromErrorProto(ToErrorProto(SeqReused())) == SeqReused());
  const absl::Status lost = FromErrorProto(ToErrorProto(absl::NotFoundError("no model m")));
  CHECK(lost.code() == absl::StatusCode::kNotFound);
  v1::Error error;
  error.set_code("worker_lost");
  error.set_category(v1::ERROR_CATEGORY_SERVER);
  CHECK(FromErrorProto(error).code() == absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace lathe
