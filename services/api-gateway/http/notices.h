// Messages to the users of clients, sent as headers that the SDK writes into their logs.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "services/api-gateway/http/headers.h"
#include "services/api-gateway/http/message.h"

namespace lathe::gateway {

struct NoticeOptions {
  // Text for every client; empty: none. Printable ASCII, at most 1,024 bytes.
  std::string notice;
  // Level at which the SDK logs `notice`: "warning" or "error".
  std::string notice_level = "warning";
  // Oldest supported SDK. Older ones get an error notice to upgrade. Empty: no minimum.
  std::string min_sdk_version = "0.25.0";
};

// Returns InvalidArgument, naming the option, if `options` are not valid.
absl::Status CheckNotices(const NoticeOptions& options);

// Adds the notices to responses. Immutable.
class Notices {
 public:
  // `options` must have passed CheckNotices.
  explicit Notices(NoticeOptions options);

  // Adds x-deprecation-note if there is a notice for the client of `request`, and
  // x-deprecation-level if it is an error.
  void AddTo(const Request& request, Response& response) const;

 private:
  const NoticeOptions options_;
  std::optional<SdkVersion> min_sdk_version_;
};

}  // namespace lathe::gateway
