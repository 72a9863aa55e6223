// Routes for the OpenAPI description, and for a web page that shows it.
#include <string>
#include <utility>
#include <vector>

#include "services/api-gateway/routes/embedded_response.h"
#include "services/api-gateway/routes/route_table.h"

namespace lathe::gateway {
namespace {

std::vector<Header> PageHeaders() {
  return {{"Content-Security-Policy", "default-src 'self'; frame-ancestors 'none'"},
          {"X-Content-Type-Options", "nosniff"}};
}

Handler FileHandler(const EmbeddedFile& file) {
  return [&file](Request& request) -> asio::awaitable<absl::StatusOr<Response>> {
    co_return FileResponse(request, file, Caching::kRevalidate, PageHeaders());
  };
}

Handler DocumentHandler(std::string text) {
  return [text = std::move(text)](Request&) -> asio::awaitable<absl::StatusOr<Response>> {
    Response response;
    response.body = text;
    response.headers = PageHeaders();
    co_return response;
  };
}

Route FileRoute(const char* path, const char* summary, const char* name) {
  const EmbeddedFile& file = *FindFile(DocsFiles(), name);
  return {.method = "GET",
          .pattern = path,
          .tag = "documentation",
          .summary = summary,
          .answer_type = std::string(file.content_type),
          .access = Access::kPublic,
          .handler = FileHandler(file)};
}

}  // namespace

// These routes are public, because they reveal only the server's version.
void AddDocsRoutes(std::vector<Route>& routes) {
  routes.push_back(FileRoute("/docs", "This page", "index.html"));
  routes.push_back(FileRoute("/docs/page.js", "Its script", "page.js"));
  routes.push_back(FileRoute("/docs/page.css", "Its style", "page.css"));
  routes.push_back({.method = "GET",
                    .pattern = "/docs/openapi.json",
                    .tag = "documentation",
                    .summary = "This API for programs",
                    .answer = "Object",
                    .access = Access::kPublic});
  // The document describes its own route too.
  routes.back().handler = DocumentHandler(OpenApiDocument(routes));
}

}  // namespace lathe::gateway
