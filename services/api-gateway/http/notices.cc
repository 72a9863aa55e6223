#include "services/api-gateway/http/notices.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace lathe::gateway {
namespace {

constexpr size_t kMaxNoticeBytes = 1024;

std::string TextOf(const SdkVersion& version) { return absl::StrJoin(version, "."); }

}  // namespace

absl::Status CheckNotices(const NoticeOptions& options) {
  if (options.notice.size() > kMaxNoticeBytes) {
    return absl::InvalidArgumentError(absl::StrFormat("notice has %d bytes, limit is %d",
                                                      options.notice.size(), kMaxNoticeBytes));
  }
  // The notice becomes a header value, so it must be printable ASCII.
  const bool is_clean = std::all_of(options.notice.begin(), options.notice.end(),
                                    [](unsigned char c) { return absl::ascii_isprint(c); });
  if (!is_clean) {
    return absl::InvalidArgumentError("notice has a character that is not printable ASCII");
  }
  if (options.notice_level != "warning" && options.notice_level != "error") {
    return absl::InvalidArgumentError(
        absl::StrFormat("notice_level is '%s', expected warning or error", options.notice_level));
  }
  if (!options.min_sdk_version.empty() && !ParseSdkVersion(options.min_sdk_version)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "min_sdk_version is '%s', expected a version like 0.25.0", options.min_sdk_version));
  }
  return absl::OkStatus();
}

Notices::Notices(NoticeOptions options)
    : options_(std::move(options)), min_sdk_version_(ParseSdkVersion(options_.min_sdk_version)) {}

void Notices::AddTo(const Request& request, Response& response) const {
  std::string note = options_.notice;
  bool is_error = !note.empty() && options_.notice_level == "error";
  const std::optional<SdkVersion> version = SdkVersionOf(request);
  if (min_sdk_version_ && version && *version < *min_sdk_version_) {
    absl::StrAppend(&note, note.empty() ? "" : " | ", "tinker ", TextOf(*version),
                    " is older than ", TextOf(*min_sdk_version_),
                    ", the oldest that this server supports: upgrade it");
    is_error = true;
  }
  if (note.empty()) return;
  response.headers.push_back({"x-deprecation-note", std::move(note)});
  if (is_error) response.headers.push_back({"x-deprecation-level", "error"});
}

}  // namespace lathe::gateway
