// Small HTTP calls to services beside Lathe: those that give out keys, and collectors.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace lathe {

struct HttpCallRequest {
  std::string url;
  std::vector<std::string> headers = {};
  std::string body = "";   // body of a POST, a form unless a header says otherwise; empty: GET
  bool may_proxy = false;  // true: through the proxy that the environment names
  // True: addresses of this machine, of the link and of no machine are not called, whatever name
  // leads to them. Cloud providers answer there with credentials.
  bool refuses_local = false;
  absl::Duration timeout = absl::Seconds(5);
  // Asked about once a second. The call ends with Cancelled once it returns true. Empty: never.
  std::function<bool()> is_cancelled = {};
};

struct HttpAnswer {
  int status = 0;
  std::string body;  // at most 1 MiB
};

// Returns the answer, whatever its status. Follows no redirect. Unavailable: no answer, or one of
// more than 1 MiB.
absl::StatusOr<HttpAnswer> HttpExchange(const HttpCallRequest& request);

// Returns the body of a 2xx answer. Unavailable: no answer, or another status. It names neither the
// query nor the answer, which may hold secrets.
absl::StatusOr<std::string> HttpCall(const HttpCallRequest& request);

// Returns a URL without user, password, query and fragment.
std::string UrlToShow(const std::string& url);

// Calls curl_global_init once in the process.
void InitCurlOnce();

// Encodes all but the characters that RFC 3986 calls unreserved, as signatures need it.
std::string EncodeQueryPart(const std::string& text);

}  // namespace lathe
