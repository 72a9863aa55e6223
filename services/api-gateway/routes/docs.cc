// Routes for the OpenAPI description, and for a web page that shows it.
#include <string>
#include <string_view>
#include <utility>

#include "services/api-gateway/routes/docs_files.h"
#include "services/api-gateway/routes/route_table.h"

namespace lathe::gateway {
namespace {

Handler TextHandler(const char* content_type, std::string text) {
  return [content_type,
          text = std::move(text)](Request&) -> asio::awaitable<absl::StatusOr<Response>> {
    Response response;
    response.content_type = content_type;
    response.body = text;
    response.headers = {{"Content-Security-Policy", "default-src 'self'; frame-ancestors 'none'"},
                        {"X-Content-Type-Options", "nosniff"}};
    co_return response;
  };
}

Route FileRoute(const char* path, const char* summary, const char* content_type,
                std::string_view text) {
  return {.method = "GET",
          .pattern = path,
          .tag = "documentation",
          .summary = summary,
          .answer_type = content_type,
          .access = Access::kPublic,
          .handler = TextHandler(content_type, std::string(text))};
}

}  // namespace

// These routes are public, because they reveal only the server's version.
void AddDocsRoutes(std::vector<Route>& routes) {
  routes.push_back(FileRoute("/docs", "This page", "text/html; charset=utf-8", DocsIndexHtml()));
  routes.push_back(
      FileRoute("/docs/page.js", "Its script", "text/javascript; charset=utf-8", DocsPageJs()));
  routes.push_back(
      FileRoute("/docs/page.css", "Its style", "text/css; charset=utf-8", DocsPageCss()));
  routes.push_back({.method = "GET",
                    .pattern = "/docs/openapi.json",
                    .tag = "documentation",
                    .summary = "This API for programs",
                    .answer = "Object",
                    .access = Access::kPublic});
  // The document describes its own route too.
  routes.back().handler = TextHandler("application/json", OpenApiDocument(routes));
}

}  // namespace lathe::gateway
