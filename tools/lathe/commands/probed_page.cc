#include "tools/lathe/commands/probed_page.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "libs/common/status_macros.h"
#include "tools/lathe/exit_code.h"

namespace lathe::cli {
namespace {

constexpr char kDefaultApi[] = "127.0.0.1:8080";

struct KnownPage {
  std::string program;
  std::string key;
  std::string page;
  std::string api;
  std::string cert;
};

std::vector<KnownPage> Known(const PageOptions& options) {
  return {{"gateway", "metrics.gateway_listen", options.gateway_page, options.gateway_api,
           options.gateway_cert},
          {"engine", "metrics.engine_listen", options.engine_page, "", ""},
          {"worker", "metrics.worker_listen", options.worker_page, "", ""},
          {"up", "up.metrics_listen", options.up_page, options.up_api, options.up_cert},
          {"ranks", "ranks.metrics_listen", options.ranks_page, "", ""}};
}

absl::StatusOr<ListenAddress> Address(const KnownPage& known) {
  if (known.page.empty() && !known.cert.empty()) {
    return UsageError(absl::StrCat("the API of ", known.program,
                                   " speaks TLS and has no page without; set ", known.key));
  }
  const std::string& text = known.page.empty() ? known.api : known.page;
  if (text.empty()) {
    return UsageError(absl::StrCat(known.program, " has no page: set ", known.key));
  }
  ASSIGN_OR_RETURN(ListenAddress address, ParseListenAddress(text, known.key));
  if (address.port > 0) return address;
  return UsageError(
      absl::StrCat(known.key, " is ", text, ": the process chooses its port, so give its URL"));
}

}  // namespace

void AddPageOptions(OptionSet& set, PageOptions& options) {
  const auto add = [&set](std::string* target, const char* key) {
    set.Add(target, key, "", "", {.borrowed = true});
  };
  add(&options.gateway_page, "metrics.gateway_listen");
  add(&options.engine_page, "metrics.engine_listen");
  add(&options.worker_page, "metrics.worker_listen");
  add(&options.up_page, "up.metrics_listen");
  add(&options.ranks_page, "ranks.metrics_listen");
  add(&options.gateway_api, "gateway.listen");
  add(&options.gateway_cert, "gateway.tls_cert");
  add(&options.up_api, "up.listen");
  add(&options.up_cert, "up.tls_cert");
}

absl::StatusOr<ListenAddress> FindPage(const PageOptions& options, const std::string& program) {
  std::vector<KnownPage> with_page;
  std::vector<KnownPage> with_api;
  for (const KnownPage& known : Known(options)) {
    if (!program.empty() && known.program == program) return Address(known);
    if (!known.page.empty()) with_page.push_back(known);
    if (!known.api.empty() || !known.cert.empty()) with_api.push_back(known);
  }
  const std::vector<KnownPage>& candidates = with_page.empty() ? with_api : with_page;
  if (candidates.empty()) return ParseListenAddress(kDefaultApi);
  if (candidates.size() == 1) return Address(candidates.front());
  return UsageError(
      absl::StrCat("several processes have a page, so --of must be one of ",
                   absl::StrJoin(candidates, ", ", [](std::string* text, const KnownPage& known) {
                     absl::StrAppend(text, known.program);
                   })));
}

absl::StatusOr<ProbeTarget> ParseProbeUrl(const std::string& url) {
  constexpr char kScheme[] = "http://";
  if (!absl::StartsWith(url, kScheme)) {
    return UsageError(absl::StrCat("URL is '", url, "', expected http://HOST:PORT"));
  }
  const std::string rest = url.substr(sizeof(kScheme) - 1);
  const std::size_t slash = rest.find('/');
  ProbeTarget target;
  if (slash != std::string::npos && slash + 1 < rest.size()) target.path = rest.substr(slash);
  const absl::StatusOr<ListenAddress> address = ParseListenAddress(rest.substr(0, slash), "URL");
  if (!address.ok()) return UsageError(std::string(address.status().message()));
  target.address = *address;
  return target;
}

}  // namespace lathe::cli
