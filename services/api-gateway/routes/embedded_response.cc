#include "services/api-gateway/routes/embedded_response.h"

#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "libs/common/strings/string_view.h"

namespace lathe::gateway {
namespace {

constexpr int kNotModified = 304;

// Returns true unless the parameters of a coding, such as ";q=0", refuse it.
bool IsWanted(absl::string_view parameters) {
  for (absl::string_view parameter : absl::StrSplit(parameters, ';')) {
    parameter = absl::StripAsciiWhitespace(parameter);
    double weight = 1;
    if (absl::ConsumePrefix(&parameter, "q=") || absl::ConsumePrefix(&parameter, "Q=")) {
      return absl::SimpleAtod(parameter, &weight) && weight > 0;
    }
  }
  return true;
}

}  // namespace

bool AcceptsGzip(std::string_view accept_encoding) {
  std::optional<bool> by_name;
  bool by_star = false;
  for (const absl::string_view entry : absl::StrSplit(AbslView(accept_encoding), ',')) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(entry, absl::MaxSplits(';', 1));
    const absl::string_view coding = absl::StripAsciiWhitespace(parts.first);
    if (absl::EqualsIgnoreCase(coding, "gzip")) by_name = IsWanted(parts.second);
    if (coding == "*") by_star = IsWanted(parts.second);
  }
  return by_name.value_or(by_star);
}

bool MatchesEtag(std::string_view if_none_match, std::string_view etag) {
  absl::string_view wanted = AbslView(etag);
  absl::ConsumePrefix(&wanted, "W/");
  for (absl::string_view entry : absl::StrSplit(AbslView(if_none_match), ',')) {
    entry = absl::StripAsciiWhitespace(entry);
    if (entry == "*") return true;
    absl::ConsumePrefix(&entry, "W/");
    if (entry == wanted) return true;
  }
  return false;
}

Response FileResponse(const Request& request, const EmbeddedFile& file, Caching caching,
                      std::vector<Header> headers) {
  Response response;
  response.content_type = file.content_type;
  response.headers = std::move(headers);
  // The validator is weak, because it is the same for either encoding.
  const std::string etag = absl::StrCat("W/\"", AbslView(file.sha256), "\"");
  response.headers.push_back({"ETag", etag});
  response.headers.push_back({"Cache-Control", caching == Caching::kImmutable
                                                   ? "public, max-age=31536000, immutable"
                                                   : "no-cache"});
  response.headers.push_back({"Vary", "Accept-Encoding"});
  if (MatchesEtag(request.HeaderValue("if-none-match"), etag)) {
    response.status = kNotModified;
    response.content_type.clear();
    return response;
  }
  const bool is_compressed =
      !file.gzip_bytes.empty() && AcceptsGzip(request.HeaderValue("accept-encoding"));
  if (is_compressed) response.headers.push_back({"Content-Encoding", "gzip"});
  response.body = is_compressed ? file.gzip_bytes : file.bytes;
  return response;
}

}  // namespace lathe::gateway
