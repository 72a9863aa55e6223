// The meaning of an object store's answers.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "libs/common/object_store/s3_client.h"

namespace lathe {

// Meaning of an answer that is not 2xx.
struct S3Failure {
  std::string code;               // as the store names it, e.g. "SlowDown"; empty: it names none
  absl::Status status;            // names the object and a remedy
  bool may_pass = false;          // the same request may succeed later
  bool wants_other_keys = false;  // the keys have expired
};

// `address` is that of the object, `method` the request's.
S3Failure ReadFailure(const S3Response& response, const std::string& method,
                      const std::string& address);

}  // namespace lathe
