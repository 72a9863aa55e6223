#include "libs/common/errors.h"

#include <catch2/catch.hpp>

#include "libs/common/status_macros.h"

namespace lathe {
namespace {

absl::StatusOr<int> Half(int value) {
  if (value % 2 != 0) return absl::InvalidArgumentError("value is odd");
  return value / 2;
}

absl::StatusOr<int> Quarter(int value) {
  ASSIGN_OR_RETURN(const int half, Half(value));
  return Half(half);
}

absl::Status CheckQuarter(int value) {
  RETURN_IF_ERROR(Quarter(value).status());
  return absl::OkStatus();
}

TEST_CASE("A status carries its word and field", "[errors]") {
  const absl::Status status =
      WithDetail(absl::InvalidArgumentError("beta1 is 2, limit is 1"), "bad_value", "beta1");
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(ErrorCode(status) == "bad_value");
  CHECK(ErrorField(status) == "beta1");
}

TEST_CASE("A plain status has its code as word and no field", "[errors]") {
  CHECK(ErrorCode(absl::ResourceExhaustedError("queue is full")) == "resource_exhausted");
  CHECK(ErrorField(absl::ResourceExhaustedError("queue is full")).empty());
  CHECK(ErrorCode(absl::OkStatus()).empty());
}

TEST_CASE("Every status code has a word that leads back to it", "[errors]") {
  for (int code = 0; code <= 16; ++code) {
    const auto status_code = static_cast<absl::StatusCode>(code);
    CHECK(StatusCodeFromName(StatusCodeName(status_code)) == status_code);
  }
  CHECK(StatusCodeFromName("seq_id_reused") == absl::StatusCode::kUnknown);
}

TEST_CASE("Errors of the caller are distinguished from server errors", "[errors]") {
  CHECK(IsUserError(absl::InvalidArgumentError("")));
  CHECK(IsUserError(absl::UnauthenticatedError("")));
  CHECK_FALSE(IsUserError(absl::InternalError("")));
  CHECK_FALSE(IsUserError(absl::ResourceExhaustedError("")));
  CHECK_FALSE(IsUserError(absl::OkStatus()));
}

TEST_CASE("The status macros return early with the first error", "[errors]") {
  CHECK(*Quarter(8) == 2);
  CHECK(Quarter(6).status().message() == "value is odd");
  CHECK(CheckQuarter(4).ok());
  CHECK(CheckQuarter(3).code() == absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lathe
