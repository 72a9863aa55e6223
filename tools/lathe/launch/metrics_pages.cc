#include "tools/lathe/launch/metrics_pages.h"

#include <set>

#include "absl/strings/str_format.h"
#include "libs/common/errors.h"
#include "libs/common/status_macros.h"

namespace lathe::cli {
namespace {

constexpr char kOption[] = "metrics_listen";

absl::Status Refusal(const std::string& message) {
  return WithDetail(absl::InvalidArgumentError(message), "configuration", kOption);
}

}  // namespace

absl::StatusOr<std::vector<ListenAddress>> ClaimMetricsPages(const std::string& text, int count,
                                                             int other_port,
                                                             absl::Duration patience) {
  ASSIGN_OR_RETURN(const ListenAddress first, ParseListenAddress(text, kOption));
  const int max_first_port = 65535 - (count - 1);
  if (first.port > max_first_port) {
    return Refusal(absl::StrFormat(
        "metrics_listen has port %d, limit is %d: those of other processes are on the next %d",
        first.port, max_first_port, count - 1));
  }
  std::vector<ListenAddress> pages;
  std::set<int> taken;
  if (other_port > 0) taken.insert(other_port);
  for (int place = 0; place < count; ++place) {
    ListenAddress page = first;
    if (first.port > 0) page.port = first.port + place;
    RETURN_IF_ERROR(ClaimPort(page, patience));
    // ClaimPort does not keep a free port bound, so it may return the same port again.
    while (first.port == 0 && taken.contains(page.port)) {
      page.port = 0;
      RETURN_IF_ERROR(ClaimPort(page));
    }
    if (!taken.insert(page.port).second) {
      return Refusal(
          absl::StrFormat("metrics_listen and the %d ports after it include that of listen, %d",
                          count - 1, page.port));
    }
    pages.push_back(page);
  }
  return pages;
}

}  // namespace lathe::cli
