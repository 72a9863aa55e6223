// Routes of the dashboard: its page under every address of /ui, and the files that it loads.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "libs/common/errors.h"
#include "services/api-gateway/http/error_response.h"
#include "services/api-gateway/routes/embedded_response.h"
#include "services/api-gateway/routes/route_table.h"

namespace lathe::gateway {
namespace {

constexpr int kSeeOther = 303;
constexpr char kHtml[] = "text/html; charset=utf-8";

// The page loads nothing from elsewhere, runs no script but its own, and cannot be framed. Trusted
// Types make a browser refuse every use of text as markup.
std::vector<Header> SecurityHeaders() {
  return {{"Content-Security-Policy",
           "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
           "font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
           "frame-ancestors 'none'; require-trusted-types-for 'script'"},
          {"X-Content-Type-Options", "nosniff"},
          {"X-Frame-Options", "DENY"},
          {"Referrer-Policy", "same-origin"},
          {"Cross-Origin-Opener-Policy", "same-origin"},
          {"Cross-Origin-Resource-Policy", "same-origin"},
          {"Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()"}};
}

// The page itself finds out what its address means. Only the licences are another file.
asio::awaitable<absl::StatusOr<Response>> ServePage(Request& request) {
  const bool is_licenses = request.path == "/ui/licenses";
  const EmbeddedFile* page = is_licenses ? FindFile(DashboardFiles(), "licenses.txt") : nullptr;
  if (page == nullptr) page = FindFile(DashboardFiles(), "index.html");
  co_return FileResponse(request, *page, Caching::kRevalidate, SecurityHeaders());
}

// A link of `lathe up` has a ticket, which the browser exchanges for a session at once.
asio::awaitable<absl::StatusOr<Response>> ServeFirstPage(SignIn& sign_in, Request& request) {
  const auto ticket = request.QueryValue("ticket");
  if (!ticket || request.method != "GET") co_return co_await ServePage(request);
  co_return co_await sign_in.WithTicket(request, std::string(*ticket));
}

// Only whole names of the table are found, so no name leads out of it.
asio::awaitable<absl::StatusOr<Response>> ServeAsset(Request& request) {
  const EmbeddedFile* const file =
      FindFile(DashboardFiles(), absl::StrCat("assets/", request.path_parameters[0]));
  if (file != nullptr) {
    co_return FileResponse(request, *file, Caching::kImmutable, SecurityHeaders());
  }
  Response answer = ErrorResponse(WithDetail(
      absl::NotFoundError("the dashboard has no such file; reload the page"), "unknown_file"));
  for (Header& header : SecurityHeaders()) answer.headers.push_back(std::move(header));
  // A gateway of another release may have the file.
  answer.headers.push_back({"Cache-Control", "no-store"});
  co_return answer;
}

asio::awaitable<absl::StatusOr<Response>> RedirectToPage(Request&) {
  Response response;
  response.status = kSeeOther;
  response.content_type = "text/plain";
  response.headers = {{"Location", "/ui"}};
  co_return response;
}

Route PageRoute(const char* path, const char* summary) {
  return {.method = "GET",
          .pattern = path,
          .tag = "dashboard",
          .summary = summary,
          .answer_type = kHtml,
          .access = Access::kPublic,
          .handler = ServePage};
}

}  // namespace

// These routes are public: what they serve is the same for everybody. The page's own calls carry
// the session.
std::vector<Route> DashboardRoutes(const RouteContext& context) {
  Route first = PageRoute("/ui", "The dashboard");
  first.handler = [&sign_in = context.sign_in](Request& request) {
    return ServeFirstPage(sign_in, request);
  };
  return {
      first,
      PageRoute("/ui/{page}", "A page of the dashboard"),
      PageRoute("/ui/runs/{run_id}", "A run in the dashboard"),
      {.method = "GET",
       .pattern = "/ui/assets/{file}",
       .tag = "dashboard",
       .summary = "A script, style or font of the dashboard",
       .answer_type = "application/octet-stream",
       .access = Access::kPublic,
       .handler = ServeAsset},
      {.method = "GET",
       .pattern = "/",
       .tag = "dashboard",
       .summary = "Leads to the dashboard",
       .answer_type = "text/plain",
       .status = kSeeOther,
       .access = Access::kPublic,
       .handler = RedirectToPage},
  };
}

}  // namespace lathe::gateway
