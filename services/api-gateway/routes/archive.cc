// Routes for checkpoint downloads: signed links, and the files behind them.
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "libs/common/digest/sha256.h"
#include "services/api-gateway/engine_client/service_clients.h"
#include "services/api-gateway/http/headers.h"
#include "services/api-gateway/http/request_addresses.h"
#include "services/api-gateway/json/metadata_json.h"
#include "services/api-gateway/routes/route_table.h"
#include "services/api-gateway/routes/rpc_route.h"

namespace lathe::gateway {
namespace {

using Stub = EngineClient::AsyncStub;
using CheckpointsStub = v1::Checkpoints::StubInterface::async_interface;

Response RedirectTo(const std::string& url, const google::protobuf::Timestamp& expires_at) {
  Response response = JsonResponse({{"url", url}, {"expires", TimestampText(expires_at)}});
  response.status = 302;
  response.headers.push_back({"Location", url});
  // The link needs no key, so no cache may give it to others.
  response.headers.push_back({"Cache-Control", "no-store"});
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
    Response response =
        RedirectTo(absl::StrCat(*base, "/archive/", answer->token()), answer->expires_at());
    // A page cannot read where a redirect leads.
    if (request.QueryValue("redirect") == "false") response.status = 200;
    co_return response;
  };
}

// Keeps only characters that are safe in a quoted header value. Returns "checkpoint.tar" if none
// are left.
std::string SafeFileName(std::string name) {
  std::erase_if(name, [](unsigned char c) {
    return !absl::ascii_isalnum(c) && c != '.' && c != '-' && c != '_';
  });
  return name.empty() ? "checkpoint.tar" : name;
}

// Answers one link per file of an external checkpoint.
Handler ExternalUrlsHandler(const RouteContext& context) {
  return [context](Request& request) -> asio::awaitable<absl::StatusOr<Response>> {
    const absl::StatusOr<std::string> base = PublicUrl(request, context.options.public_url);
    if (!base.ok()) co_return base.status();
    v1::DescribeExternalWeightsRequest question;
    question.set_tinker_path(absl::StrCat("tinker://", request.path_parameters[0],
                                          "/external_weights/", request.path_parameters[1]));
    const absl::StatusOr<v1::DescribeExternalWeightsResponse> answer = co_await context.engine.Call(
        &CheckpointsStub::DescribeExternalWeights, question, request.api_key);
    if (!answer.ok()) co_return answer.status();
    Json urls = Json::object();
    for (const v1::ExternalFile& file : answer->files()) {
      urls[file.name()] = absl::StrCat(*base, "/archive/", file.token());
    }
    co_return JsonResponse(
        {{"urls", std::move(urls)}, {"expires", TimestampText(answer->expires_at())}});
  };
}

// Identifies the content of a download. A checkpoint's files never change, and no two checkpoints
// share a directory.
std::string EntityTag(const v1::OpenArchiveResponse& archive) {
  std::string text = archive.dir();
  for (const v1::ArchiveFile& file : archive.files()) absl::StrAppend(&text, "\n", file.name());
  return absl::StrCat("\"", Sha256Hex(text).substr(0, 32), "\"");
}

// Limits `response` to the byte range that `request` asks for, if any.
void ApplyRange(const Request& request, const std::string& tag, DownloadStream& stream,
                Response& response) {
  const std::string_view condition = request.HeaderValue("if-range");
  if (!condition.empty() && condition != tag) return;
  const int64_t total = stream.num_bytes();
  const auto range = ParseByteRange(request.HeaderValue("range"), total);
  if (!range) return;
  const bool is_empty = range->begin == range->end;
  response.status = is_empty ? 416 : 206;
  response.headers.push_back(
      {"Content-Range",
       is_empty ? absl::StrCat("bytes */", total)
                : absl::StrCat("bytes ", range->begin, "-", range->end - 1, "/", total)});
  stream.Select(range->begin, range->end);
  response.stream->num_bytes = range->end - range->begin;
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
    absl::StatusOr<std::shared_ptr<DownloadStream>> stream =
        co_await context.archives.Open(answer->dir(), std::move(members), answer->is_plain());
    if (!stream.ok()) co_return stream.status();
    Response response;
    const std::string tag = EntityTag(*answer);
    response.content_type = answer->is_plain() ? "application/octet-stream" : "application/x-tar";
    response.headers = {
        {"Accept-Ranges", "bytes"},
        {"ETag", tag},
        {"Content-Disposition",
         absl::StrCat("attachment; filename=\"", SafeFileName(answer->file_name()), "\"")}};
    response.stream.emplace();
    response.stream->num_bytes = (*stream)->num_bytes();
    response.stream->next = [stream = *stream, &archives = context.archives] {
      return archives.ReadNext(stream);
    };
    ApplyRange(request, tag, **stream, response);
    co_return response;
  };
}

}  // namespace

std::vector<Route> ArchiveRoutes(const RouteContext& context) {
  return {
      {.method = "GET",
       .pattern = "/api/v1/training_runs/{run_id}/checkpoints/{kind}/{name}/archive",
       .tag = "checkpoints",
       .summary = "A link to the checkpoint as one tar file",
       .description = "Location has the link; it needs no key and expires. With redirect=false the "
                      "answer has the status 200.",
       .query = {"redirect"},
       .answer = "ArchiveLinkResponse",
       .status = 302,
       .handler = LinkHandler(context)},
      {.method = "GET",
       .pattern = "/api/v1/training_runs/{run_id}/checkpoints/external_weights/{name}/"
                  "external_weights_urls",
       .tag = "checkpoints",
       .summary = "Links to the files of an external checkpoint",
       .description = "The links need no key and expire.",
       .answer = "Object",
       .handler = ExternalUrlsHandler(context)},
      // The link itself is the credential, because plain HTTP clients download the file.
      {.method = "GET",
       .pattern = "/archive/{token}",
       .tag = "checkpoints",
       .summary = "Download",
       .answer_type = "application/x-tar",
       .access = Access::kPublic,
       .handler = DownloadHandler(context)},
  };
}

}  // namespace lathe::gateway
