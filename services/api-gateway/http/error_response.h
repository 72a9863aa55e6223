// Maps absl::Status to HTTP answers. The HTTP statuses of all the API's errors are chosen here.
#pragma once

#include "absl/status/status.h"
#include "services/api-gateway/http/message.h"

namespace lathe::gateway {

// Returns an answer with the body
// {"error": {"code", "message", "param", "hint"?, "request_id"?}, "detail": message}.
// The status is never 409, because the SDK retries that for minutes. Answers of 500 and above are
// logged with their request_id.
Response ErrorResponse(const absl::Status& status);

// Returns the HTTP status of ErrorResponse.
int HttpStatus(const absl::Status& status);

}  // namespace lathe::gateway
