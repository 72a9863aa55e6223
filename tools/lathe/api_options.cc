#include "tools/lathe/api_options.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "libs/common/errors.h"
#include "libs/common/listener/exposure.h"
#include "libs/common/status_macros.h"
#include "tools/lathe/exit_code.h"
#include "tools/lathe/terminal/text.h"

namespace lathe::cli {
namespace {

constexpr char kDefaultUrl[] = "http://127.0.0.1:8080";
constexpr std::size_t kMaxIdBytes = 512;

std::string FromEnvironment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : std::string(absl::StripAsciiWhitespace(value));
}

bool IsThisMachine(const ApiUrl& url) {
  // IsLoopback takes "unix:80" for a socket, but a host may have that name.
  return url.host != "unix" && IsLoopback(url.Authority());
}

}  // namespace

void AddApiOptions(OptionSet& set, ApiOptions& options) {
  set.Add(&options.url, "api.url", "",
          "http[s]://HOST[:PORT] of the API; empty: TINKER_BASE_URL, else http://127.0.0.1:8080");
  set.Add(&options.api_key, "api.api_key", "",
          "API key with the scope read; empty: TINKER_API_KEY, else DATA_DIR/admin.key, which is "
          "sent to this machine only",
          {.secret = true});
  set.Add(&options.ca, "api.ca", "",
          "PEM file of the authority that signed the API's certificate; empty: the system's");
  AddDataDirOptions(set, options.data);
}

absl::StatusOr<ApiClient> OpenApi(const ApiOptions& options) {
  std::string url = options.url.empty() ? FromEnvironment("TINKER_BASE_URL") : options.url;
  if (url.empty()) url = kDefaultUrl;
  ASSIGN_OR_RETURN(ApiUrl parsed, ParseApiUrl(std::move(url)));
  std::string key = options.api_key.empty() ? FromEnvironment("TINKER_API_KEY") : options.api_key;
  if (key.empty() && IsThisMachine(parsed)) {
    key = ReadTextFile(OpenDataDir(options.data).admin_key()).value_or("");
  }
  if (key.empty()) {
    return UsageError(
        "no API key: set TINKER_API_KEY, or give --api-key-file, or --data-dir on the machine of "
        "the service");
  }
  absl::StatusOr<ApiClient> api = ApiClient::Create(std::move(parsed), options.ca, std::move(key));
  if (!api.ok()) return WithDetail(api.status(), "configuration");
  return api;
}

absl::Status CheckId(const std::string& what, const std::string& id) {
  const bool is_good =
      !id.empty() && id.size() <= kMaxIdBytes && std::all_of(id.begin(), id.end(), [](char c) {
        return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
               std::string_view(":_.-").find(c) != std::string_view::npos;
      });
  if (is_good) return absl::OkStatus();
  return UsageError(absl::StrCat(what, " is '", SafeText(id.substr(0, 64)), "', expected 1 to ",
                                 kMaxIdBytes, " letters, digits and : _ . -"));
}

}  // namespace lathe::cli
