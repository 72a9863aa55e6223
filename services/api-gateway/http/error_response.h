// Status -> HTTP: the only place that knows status codes of errors.
#pragma once

#include "absl/status/status.h"
#include "services/api-gateway/http/message.h"

namespace lathe::gateway {

// {"error": {"code", "message", "param", "hint"?, "request_id"?}, "detail": message}. Never 409,
// which the SDK repeats for minutes. Answers of 500 and above are logged under their request_id.
Response ErrorResponse(const absl::Status& status);

// The HTTP status alone.
int HttpStatus(const absl::Status& status);

}  // namespace lathe::gateway
