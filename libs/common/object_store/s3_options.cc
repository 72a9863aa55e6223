#include "libs/common/object_store/s3_options.h"

#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "libs/common/listener/exposure.h"
#include "libs/common/object_store/object_name.h"
#include "libs/common/status_macros.h"

namespace lathe {
namespace {

constexpr char kScheme[] = "s3://";

absl::Status CheckBucket(const std::string& bucket) {
  const bool is_plain =
      bucket.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789.-") == std::string::npos;
  if (is_plain && bucket.size() >= 3 && bucket.size() <= 63) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "the bucket is '%s', expected 3 to 63 lower-case letters, digits, dots and dashes", bucket));
}

// Returns HOST:PORT of an endpoint.
std::string HostAndPort(std::string_view endpoint, bool is_http) {
  std::string host(endpoint.substr(endpoint.find("://") + 3));
  if (host.find(':', host.rfind(']') == std::string::npos ? 0 : host.rfind(']')) ==
      std::string::npos) {
    absl::StrAppend(&host, is_http ? ":80" : ":443");
  }
  return host;
}

}  // namespace

absl::Status ReadS3Url(const std::string& url, S3Options& options) {
  if (!absl::StartsWith(url, kScheme)) {
    return absl::InvalidArgumentError(absl::StrFormat("'%s' is no s3://BUCKET[/PREFIX]", url));
  }
  const std::string rest = url.substr(sizeof(kScheme) - 1);
  const size_t slash = rest.find('/');
  options.bucket = rest.substr(0, slash);
  options.prefix = slash == std::string::npos ? "" : rest.substr(slash + 1);
  while (absl::EndsWith(options.prefix, "/")) options.prefix.pop_back();
  RETURN_IF_ERROR(CheckBucket(options.bucket));
  return options.prefix.empty() ? absl::OkStatus() : CheckObjectName(options.prefix);
}

absl::Status CheckS3Options(const S3Options& options) {
  const std::string& endpoint = options.endpoint;
  if (options.region.empty()) {
    return absl::InvalidArgumentError("region is missing: name that of the bucket");
  }
  if (endpoint.empty()) return absl::OkStatus();
  const bool is_http = absl::StartsWith(endpoint, "http://");
  const size_t slashes = endpoint.find("://");
  const std::string host = slashes == std::string::npos ? "" : endpoint.substr(slashes + 3);
  if ((!is_http && !absl::StartsWith(endpoint, "https://")) || host.empty() ||
      host.find_first_of("/?#@ ") != std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrFormat("endpoint is '%s', expected https://HOST[:PORT] without a path", endpoint));
  }
  if (!is_http || options.insecure_i_know || IsLoopback(HostAndPort(endpoint, is_http))) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "endpoint is '%s': weights would cross the network in clear text; use https, or "
      "insecure_i_know on a network that is yours alone",
      endpoint));
}

std::string BucketUrl(const S3Options& options) {
  if (!options.endpoint.empty()) return absl::StrCat(options.endpoint, "/", options.bucket);
  const std::string host = absl::StrCat("s3.", options.region, ".amazonaws.com");
  if (absl::StrContains(options.bucket, ".")) {
    return absl::StrCat("https://", host, "/", options.bucket);
  }
  return absl::StrCat("https://", options.bucket, ".", host);
}

}  // namespace lathe
