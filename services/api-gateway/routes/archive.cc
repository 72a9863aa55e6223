// Downloads: a signed link, and the tar file behind it.
#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "libs/common/errors.h"
#include "services/api-gateway/json/metadata_json.h"
#include "services/api-gateway/routes/checkpoint_path.h"
#include "services/api-gateway/routes/route_table.h"
#include "services/api-gateway/routes/rpc_route.h"

namespace lathe::gateway {
namespace {

using Stub = EngineClient::AsyncStub;

// Scheme, host and port under which the client reached us.
absl::StatusOr<std::string> PublicUrl(const Request& request, const std::string& configured) {
  if (!configured.empty()) return configured;
  const std::string host(request.HeaderValue("host"));
  const bool is_clean = !host.empty() && std::all_of(host.begin(), host.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == ':' || c == '[' || c == ']';
  });
  if (is_clean) return (request.is_tls ? "https://" : "http://") + host;
  return WithDetail(absl::InvalidArgumentError("the Host header is missing or malformed"),
                    "malformed_http", "host");
}

Response RedirectTo(const std::string& url, const google::protobuf::Timestamp& expires_at) {
  Response response = JsonResponse({{"url", url}, {"expires", TimestampText(expires_at)}});
  response.status = 302;
  response.headers.push_back({"Location", url});
  response.headers.push_back(
      {"Expires",
       absl::FormatTime("%a, %d %b %Y %H:%M:%S GMT", absl::FromUnixSeconds(expires_at.seconds()),
                        absl::UTCTimeZone())});
  return response;
}

Handler LinkHandler(const RouteContext& context) {
  return [context](Request& request) -> asio::awaitable<absl::StatusOr<Response>> {
    const absl::StatusOr<std::string> base = PublicUrl(request, context.options.public_url);
    if (!base.ok()) co_return base.status();
    v1::DescribeArchiveRequest question;
    question.set_tinker_path(CheckpointPath(request));
    const absl::StatusOr<v1::DescribeArchiveResponse> answer =
        co_await context.engine.Call(&Stub::DescribeArchive, question, request.api_key);
    if (!answer.ok()) co_return answer.status();
    co_return RedirectTo(absl::StrCat(*base, "/archive/", answer->token()), answer->expires_at());
  };
}

// What may stand in a quoted header value.
std::string SafeFileName(std::string name) {
  std::erase_if(name, [](unsigned char c) {
    return !absl::ascii_isalnum(c) && c != '.' && c != '-' && c != '_';
  });
  return name.empty() ? "checkpoint.tar" : name;
}

Handler DownloadHandler(const RouteContext& context) {
  return [context](Request& request) -> asio::awaitable<absl::StatusOr<Response>> {
    v1::OpenArchiveRequest question;
    question.set_token(request.path_parameters[0]);
    const absl::StatusOr<v1::OpenArchiveResponse> answer =
        co_await context.engine.Call(&Stub::OpenArchive, question, std::string());
    if (!answer.ok()) co_return answer.status();
    std::vector<TarMember> members;
    for (const v1::ArchiveFile& file : answer->files()) {
      members.push_back({file.name(), file.size_bytes()});
    }
    absl::StatusOr<std::shared_ptr<TarStream>> tar =
        co_await context.archives.Open(answer->dir(), std::move(members));
    if (!tar.ok()) co_return tar.status();
    Response response;
    response.content_type = "application/x-tar";
    response.headers.push_back(
        {"Content-Disposition",
         absl::StrCat("attachment; filename=\"", SafeFileName(answer->file_name()), "\"")});
    response.stream.emplace();
    response.stream->num_bytes = (*tar)->num_bytes();
    response.stream->next = [tar = *tar, &archives = context.archives] {
      return archives.ReadNext(tar);
    };
    co_return response;
  };
}

}  // namespace

std::vector<Route> ArchiveRoutes(const RouteContext& context) {
  return {
      {.method = "GET",
       .pattern = "/api/v1/training_runs/{run_id}/checkpoints/{kind}/{name}/archive",
       .handler = LinkHandler(context)},
      // The link itself is the credential: downloads are made by plain HTTP clients.
      {.method = "GET",
       .pattern = "/archive/{token}",
       .access = Access::kPublic,
       .handler = DownloadHandler(context)},
  };
}

}  // namespace lathe::gateway
