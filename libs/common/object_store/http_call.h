// One small HTTP call, for the places that give out keys.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace lathe {

struct HttpCallRequest {
  std::string url;
  std::vector<std::string> headers = {};
  std::string form = "";   // body of a POST; empty: GET
  bool may_proxy = false;  // true: through the proxy that the environment names
};

// Returns the body of a 2xx answer of at most 1 MiB. Takes 5 s at most and follows no redirect.
// Unavailable: no answer, or another status. It names neither the query nor the answer, which may
// hold secrets.
absl::StatusOr<std::string> HttpCall(const HttpCallRequest& request);

// Returns a URL without user, password, query and fragment.
std::string UrlToShow(const std::string& url);

// Calls curl_global_init once in the process.
void InitCurlOnce();

// Encodes all but the characters that RFC 3986 calls unreserved, as signatures need it.
std::string EncodeQueryPart(const std::string& text);

}  // namespace lathe
