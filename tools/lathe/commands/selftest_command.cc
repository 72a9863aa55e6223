#include "tools/lathe/commands/selftest_command.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "libs/common/config/option_set.h"
#include "libs/common/errors.h"
#include "libs/common/status_macros.h"
#include "tools/lathe/selftest/self_test.h"

namespace lathe::cli {

absl::Status SelftestCommand(int argc, const char* const* argv) {
  std::string url, api_key, ca;
  SelfTestOptions test;
  OptionSet options("lathe selftest",
                    "Trains one LoRA step and samples over the API, and checks that the loss fell. "
                    "Exit code 0: the\nservice works, 1: it does not.");
  options.Add(&url, "selftest.url", "http://127.0.0.1:8080", "http[s]://HOST[:PORT] of the API");
  options.Add(&api_key, "selftest.api_key", "", "API key with the scopes train and sample",
              {.secret = true});
  options.Add(&ca, "selftest.ca", "",
              "PEM file of the authority that signed the API's certificate; empty: the system's");
  options.Add(&test.model, "selftest.model", "", "base model; empty: the first that is served");
  options.Add(&test.timeout, "selftest.timeout", absl::Minutes(5), "maximum time of all steps");
  RETURN_IF_ERROR(options.Parse(argc, argv));
  if (api_key.empty()) {
    return WithDetail(
        absl::InvalidArgumentError("no API key: give --api-key-file or LATHE_SELFTEST__API_KEY"),
        "usage");
  }
  ASSIGN_OR_RETURN(ApiUrl parsed, ParseApiUrl(url));
  absl::StatusOr<ApiClient> api = ApiClient::Create(std::move(parsed), ca, std::move(api_key));
  if (!api.ok()) return WithDetail(api.status(), "configuration");
  return RunSelfTest(*api, test);
}

}  // namespace lathe::cli
