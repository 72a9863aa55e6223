// Routes for the OpenAPI description, and for a web page that shows it.
#include <string_view>

#include "services/api-gateway/routes/docs_files.h"
#include "services/api-gateway/routes/route_table.h"

namespace lathe::gateway {
namespace {

Route FileRoute(const char* path, const char* content_type, std::string_view text) {
  return {.method = "GET",
          .pattern = path,
          .access = Access::kPublic,
          .handler = [content_type, text](Request&) -> asio::awaitable<absl::StatusOr<Response>> {
            Response response;
            response.content_type = content_type;
            response.body = text;
            response.headers = {
                {"Content-Security-Policy", "default-src 'self'; frame-ancestors 'none'"},
                {"X-Content-Type-Options", "nosniff"}};
            co_return response;
          }};
}

}  // namespace

// These routes are public, because they reveal only the server's version.
std::vector<Route> DocsRoutes(const RouteContext&) {
  return {FileRoute("/docs", "text/html; charset=utf-8", DocsIndexHtml()),
          FileRoute("/docs/page.js", "text/javascript; charset=utf-8", DocsPageJs()),
          FileRoute("/docs/page.css", "text/css; charset=utf-8", DocsPageCss()),
          FileRoute("/docs/openapi.json", "application/json", OpenApiJson())};
}

}  // namespace lathe::gateway
