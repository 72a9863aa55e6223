// Messages to the people who run clients: headers that the SDK writes into their logs.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "services/api-gateway/http/message.h"
#include "services/api-gateway/http/sdk_version.h"

namespace lathe::gateway {

struct NoticeOptions {
  // Shown to every client; empty: none. Visible ASCII and spaces, at most 1,024 bytes.
  std::string notice;
  // warning or error: how the SDK logs it.
  std::string notice_level = "warning";
  // Older SDKs are told to upgrade, as an error; empty: none is too old.
  std::string min_sdk_version = "0.25.0";
};

// InvalidArgument names the option that cannot be used.
absl::Status CheckNotices(const NoticeOptions& options);

// Immutable.
class Notices {
 public:
  // `options` passed CheckNotices.
  explicit Notices(NoticeOptions options);

  // Adds x-deprecation-note and -level if there is something to say to whoever sent `request`
  // (tinker-api 2.6).
  void AddTo(const Request& request, Response& response) const;

 private:
  const NoticeOptions options_;
  std::optional<SdkVersion> min_sdk_version_;
};

}  // namespace lathe::gateway
