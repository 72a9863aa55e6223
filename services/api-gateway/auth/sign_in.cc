#include "services/api-gateway/auth/sign_in.h"

#include <algorithm>
#include <utility>

#include "absl/time/time.h"
#include "libs/common/errors.h"
#include "services/api-gateway/engine_client/service_clients.h"

namespace lathe::gateway {
namespace {

constexpr int kSeeOther = 303;
constexpr size_t kMaxApiKeyBytes = 4096;
constexpr size_t kMaxTicketBytes = 256;
constexpr size_t kMaxUserAgentBytes = 256;
constexpr char kExpired[] = "/ui/login?error=expired";
constexpr char kBusy[] = "/ui/login?error=busy";

bool IsPrintableText(const std::string& text, size_t max_bytes) {
  return !text.empty() && text.size() <= max_bytes &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7f; });
}

}  // namespace

v1::BrowserInfo BrowserOf(const Request& request) {
  v1::BrowserInfo info;
  std::string agent(request.HeaderValue("user-agent").substr(0, kMaxUserAgentBytes));
  // The field is text, and headers may have other bytes.
  std::replace_if(
      agent.begin(), agent.end(), [](char c) { return c < 0x20 || c >= 0x7f; }, '?');
  info.set_user_agent(std::move(agent));
  info.set_ip_prefix(request.peer.to_string());
  return info;
}

Response RedirectTo(const std::string& location) {
  Response response;
  response.status = kSeeOther;
  response.content_type = "text/plain";
  response.headers = {
      {"Location", location}, {"Cache-Control", "no-store"}, {"Referrer-Policy", "no-referrer"}};
  return response;
}

void SignIn::GiveSession(const Request& request, const v1::BeginSessionResponse& begun,
                         Response& response) const {
  const absl::Time expires_at = absl::FromUnixSeconds(begun.expires_at().seconds());
  const absl::Duration lifetime = std::max(absl::ZeroDuration(), expires_at - clock_.Now());
  response.headers.push_back(cookies_.SetSession(request, begun.user_session(), lifetime));
}

asio::awaitable<absl::StatusOr<Response>> SignIn::WithKey(const Request& request,
                                                          std::string api_key) {
  const absl::Status refusal =
      WithDetail(absl::UnauthenticatedError("the API key is missing or not valid"),
                 "unauthenticated", "api_key");
  if (!IsPrintableText(api_key, kMaxApiKeyBytes)) co_return refusal;
  if (const absl::Status admitted = failed_.Admit(request.peer); !admitted.ok()) {
    co_return admitted;
  }
  v1::BeginKeySessionRequest question;
  *question.mutable_browser() = BrowserOf(request);
  const absl::StatusOr<v1::BeginSessionResponse> begun =
      co_await engine_.Call(&SignInStub::BeginKeySession, question, std::move(api_key));
  if (absl::IsUnauthenticated(begun.status())) {
    failed_.Count(request.peer);
    co_return refusal;
  }
  if (!begun.ok()) co_return begun.status();
  Response response;
  response.status = 204;
  response.headers.push_back({"Cache-Control", "no-store"});
  GiveSession(request, *begun, response);
  co_return response;
}

asio::awaitable<Response> SignIn::WithTicket(const Request& request, std::string ticket) {
  if (!failed_.Admit(request.peer).ok()) co_return RedirectTo(kBusy);
  if (!IsPrintableText(ticket, kMaxTicketBytes)) co_return RedirectTo(kExpired);
  v1::RedeemTicketRequest question;
  question.set_ticket(std::move(ticket));
  *question.mutable_browser() = BrowserOf(request);
  const absl::StatusOr<v1::BeginSessionResponse> begun =
      co_await engine_.Call(&SignInStub::RedeemTicket, question, std::string());
  if (absl::IsPermissionDenied(begun.status())) {
    failed_.Count(request.peer);
    co_return RedirectTo(kExpired);
  }
  if (!begun.ok()) co_return RedirectTo(kBusy);
  Response response = RedirectTo("/ui");
  GiveSession(request, *begun, response);
  co_return response;
}

}  // namespace lathe::gateway
