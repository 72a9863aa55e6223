// One plain HTTP request to a process of this machine.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/lathe/launch/listen_address.h"

namespace lathe::cli {

struct HttpAnswer {
  int status = 0;
  // Status line and headers.
  std::string head;
  // Beginning of the body, up to a few kilobytes.
  std::string body;
};

// Sends GET `path` and reads until the peer closes, but no longer than `timeout` in all. Errors:
// Unavailable if nothing accepts the connection or the answer is not HTTP; DeadlineExceeded.
absl::StatusOr<HttpAnswer> HttpGet(const ListenAddress& address, const std::string& path,
                                   absl::Duration timeout);

// Returns true if GET `path` on the address returns status 200 within a second.
bool AnswersOk(const ListenAddress& address, const std::string& path);

}  // namespace lathe::cli
