#include "libs/common/tracing/tracing_options.h"

#include <unistd.h>

#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "libs/common/listener/exposure.h"
#include "libs/common/status_macros.h"
#include "libs/common/version.h"

namespace lathe {
namespace {

constexpr char kTracesPath[] = "/v1/traces";

bool IsHeaderName(absl::string_view name) {
  if (name.empty()) return false;
  for (const char c : name) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '_') return false;
  }
  return true;
}

// Returns lines "Name: value".
absl::StatusOr<std::vector<std::string>> ReadHeaders(const std::string& text) {
  std::vector<std::string> headers;
  for (absl::string_view item : absl::StrSplit(text, ',', absl::SkipWhitespace())) {
    const size_t equals = item.find('=');
    const absl::string_view name = absl::StripAsciiWhitespace(item.substr(0, equals));
    if (equals == absl::string_view::npos || !IsHeaderName(name)) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "tracing.headers has no NAME=VALUE as its header %d", headers.size() + 1));
    }
    const absl::string_view value = absl::StripAsciiWhitespace(item.substr(equals + 1));
    for (const char c : value) {
      if (absl::ascii_isprint(static_cast<unsigned char>(c))) continue;
      return absl::InvalidArgumentError(absl::StrFormat(
          "tracing.headers: the value of %s has a character that is not printable ASCII", name));
    }
    headers.push_back(absl::StrCat(name, ": ", value));
  }
  return headers;
}

// Returns HOST:PORT of a URL.
std::string PlaceOf(const std::string& url) {
  const std::string rest = url.substr(url.find("://") + 3);
  const std::string host = rest.substr(0, rest.find('/'));
  const size_t bracket = host.rfind(']');
  const size_t colon = host.find(':', bracket == std::string::npos ? 0 : bracket);
  return colon == std::string::npos ? host + ":80" : host;
}

}  // namespace

void AddTracingOptions(OptionSet& set, TracingOptions& options) {
  set.Add(&options.endpoint, "tracing.endpoint", "",
          "URL of a collector that takes traces by OTLP over HTTP, such as http://127.0.0.1:4318; "
          "/v1/traces is appended; empty: no traces",
          {.flag = "tracing-endpoint"});
  set.Add(&options.headers, "tracing.headers", "",
          "headers of the requests to the collector, NAME=VALUE,NAME=VALUE", {.secret = true});
  set.Add(&options.sample_ratio, "tracing.sample_ratio", 1,
          "share of traces that are recorded, 0 to 1, which gateways decide and engines follow; a "
          "client's traceparent may turn its trace off",
          {.flag = "tracing-sample-ratio"});
  set.Add(&options.insecure_i_know, "tracing.insecure_i_know", false,
          "allows an endpoint with http on another machine", {.flag = "tracing-insecure-i-know"});
}

absl::Status CheckTracingOptions(const TracingOptions& options) {
  if (!(options.sample_ratio >= 0 && options.sample_ratio <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("tracing.sample_ratio is ", options.sample_ratio, ", expected 0 to 1"));
  }
  RETURN_IF_ERROR(ReadHeaders(options.headers).status());
  const std::string& endpoint = options.endpoint;
  if (endpoint.empty()) return absl::OkStatus();
  const bool is_http = absl::StartsWith(endpoint, "http://");
  if ((!is_http && !absl::StartsWith(endpoint, "https://")) || PlaceOf(endpoint).front() == ':' ||
      endpoint.find_first_of("?#@ ") != std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrFormat("tracing.endpoint is '%s', expected https://HOST[:PORT][/PATH]", endpoint));
  }
  if (!is_http || options.insecure_i_know || IsLoopback(PlaceOf(endpoint))) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "tracing.endpoint is '%s': ids of tenants and models would cross the network in clear text; "
      "use https, or tracing.insecure_i_know on a network that is yours alone",
      endpoint));
}

std::unique_ptr<Tracer> MakeTracer(const TracingOptions& options, const std::string& service) {
  if (options.endpoint.empty()) return nullptr;
  char host[256] = {};
  gethostname(host, sizeof(host) - 1);
  SpanExporter::Options exporter;
  exporter.url = options.endpoint;
  while (exporter.url.back() == '/') exporter.url.pop_back();
  exporter.url += kTracesPath;
  exporter.headers = ReadHeaders(options.headers).value();
  exporter.resource = {.service = service,
                       .version = std::string(kVersion),
                       .instance_id = absl::StrCat(host, ":", getpid())};
  return std::make_unique<Tracer>(std::move(exporter), options.sample_ratio);
}

}  // namespace lathe
