// What travels with an absl::Status besides its code and message: a stable word and a field name.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace lathe {

// `status` with a stable machine-readable word, e.g. "seq_id_reused", and the request field that
// was wrong, e.g. "adam_params.beta1" (empty: none). An OK status is returned as it is.
absl::Status WithDetail(absl::Status status, std::string_view code, std::string_view field = "");

// The word given to WithDetail, else the status code in lower case, e.g. "not_found"; "" for OK.
std::string ErrorCode(const absl::Status& status);

// The field given to WithDetail; "" when there is none.
std::string ErrorField(const absl::Status& status);

// Whether the caller can mend the request (category `user`), as opposed to us or the moment
// (category `server`). User: InvalidArgument, FailedPrecondition, NotFound, OutOfRange,
// AlreadyExists, PermissionDenied, Unauthenticated, Unimplemented. Server: all others, among them
// ResourceExhausted and Unavailable, which only ask to try later.
bool IsUserError(const absl::Status& status);

// "invalid_argument" and the like, in both directions. An unknown word gives kUnknown.
std::string StatusCodeWord(absl::StatusCode code);
absl::StatusCode StatusCodeFromWord(std::string_view word);

}  // namespace lathe
