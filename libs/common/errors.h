// Details of an absl::Status besides its code and message: a stable word, a field name and a retry
// delay.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace lathe {

// Adds a stable machine-readable word to `status`, e.g. "seq_id_reused", and the name of the wrong
// request field, e.g. "adam_params.beta1" (empty: none). Returns an OK status unchanged.
absl::Status WithDetail(absl::Status status, std::string_view code, std::string_view field = "");

// Returns the word given to WithDetail, else the status code in lower case, e.g. "not_found"; ""
// for OK.
std::string ErrorCode(const absl::Status& status);

// Returns the field given to WithDetail, or "" when there is none.
std::string ErrorField(const absl::Status& status);

// Returns true if the caller can correct the request (category `user`), false if the service failed
// (category `server`). User: InvalidArgument, FailedPrecondition, NotFound, OutOfRange,
// AlreadyExists, PermissionDenied, Unauthenticated, Unimplemented. Server: all others, among them
// ResourceExhausted and Unavailable, which only ask the caller to try later.
bool IsUserError(const absl::Status& status);

// Convert between status codes and words such as "invalid_argument". An unknown word gives
// kUnknown.
std::string StatusCodeName(absl::StatusCode code);
absl::StatusCode StatusCodeFromName(std::string_view word);

// Adds a retry delay to `status`. Returns an OK status unchanged, and ignores a zero `wait`.
absl::Status WithRetryAfter(absl::Status status, absl::Duration wait);

// Returns the delay, or zero when the status has none.
absl::Duration RetryAfter(const absl::Status& status);

}  // namespace lathe
