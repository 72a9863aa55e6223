// The part of SignIn that works with an identity provider (authorization code flow with PKCE).
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "libs/common/digest/sha256.h"
#include "libs/common/errors.h"
#include "libs/common/logging/logging.h"
#include "services/api-gateway/auth/sign_in.h"
#include "services/api-gateway/engine_client/service_clients.h"
#include "services/api-gateway/http/request_addresses.h"

namespace lathe::gateway {
namespace {

constexpr int kFound = 302;
constexpr absl::Duration kSealKeysLifetime = absl::Minutes(10);
// Another gateway may seal with a newer key. A wrong cookie makes the keys be read again, not
// sooner than this.
constexpr absl::Duration kSealKeysPause = absl::Seconds(10);
constexpr int kMaxSentClaims = 64;
constexpr char kCallbackPath[] = "/ui/auth/callback";

std::string Parameter(const Request& request, const char* name) {
  return std::string(request.QueryValue(name).value_or(""));
}

template <typename T>
asio::awaitable<absl::StatusOr<T>> RunBlocking(std::function<absl::StatusOr<T>()> work) {
  co_return work();
}

// Adds the texts of a claim; a claim without texts is left out.
void AddClaim(const std::string& name, const Json& value, v1::BeginUserSessionRequest& question) {
  if (question.claims_size() == kMaxSentClaims) return;
  if (!value.is_string() && !value.is_array()) return;
  v1::Claim* const claim = question.add_claims();
  claim->set_name(name);
  if (value.is_string()) claim->add_values(value.get<std::string>());
  if (!value.is_array()) return;
  for (const Json& item : value) {
    if (item.is_string()) claim->add_values(item.get<std::string>());
  }
}

v1::BeginUserSessionRequest QuestionOf(const Request& request, const std::string& issuer,
                                       const Json& claims) {
  v1::BeginUserSessionRequest question;
  question.set_issuer(issuer);
  question.set_subject(JsonString(claims, "sub").value_or(""));
  question.set_name(JsonString(claims, "name").value_or(""));
  question.set_email(JsonString(claims, "email").value_or(""));
  question.set_email_verified(JsonBool(claims, "email_verified").value_or(false));
  for (const auto& [name, value] : claims.items()) AddClaim(name, value, question);
  *question.mutable_browser() = BrowserOf(request);
  return question;
}

}  // namespace

std::vector<std::string> SignIn::Methods() const {
  if (provider_.options().issuer.empty()) return {"key"};
  return {"oidc", "key"};
}

std::string SignIn::provider_name() const {
  return provider_.options().issuer.empty() ? "" : ProviderName(provider_.options());
}

template <typename T>
asio::awaitable<absl::StatusOr<T>> SignIn::OnThread(std::function<absl::StatusOr<T>()> work) {
  if (num_waiting_.fetch_add(1) >= kMaxWaiting) {
    --num_waiting_;
    co_return absl::ResourceExhaustedError("many sign-ins wait for the identity provider");
  }
  asio::awaitable<absl::StatusOr<T>> job = RunBlocking<T>(std::move(work));
  absl::StatusOr<T> result = co_await pool_.Run(std::move(job));
  --num_waiting_;
  co_return result;
}

asio::awaitable<absl::StatusOr<std::vector<SealKey>>> SignIn::ReadSealKeys(absl::Duration max_age) {
  {
    absl::MutexLock lock(&mu_);
    if (clock_.Now() - seal_keys_read_at_ < max_age) co_return seal_keys_;
  }
  const v1::GetSealingKeysRequest question;
  const absl::StatusOr<v1::GetSealingKeysResponse> answer =
      co_await engine_.Call(&SignInStub::GetSealingKeys, question, std::string());
  if (!answer.ok()) co_return answer.status();
  std::vector<SealKey> keys;
  for (const v1::SealingKey& key : answer->keys()) {
    // A key of another size cannot seal.
    if (key.key().size() == kSealKeyBytes) {
      keys.push_back({.key_id = key.key_id(), .bytes = key.key()});
    }
  }
  if (keys.empty()) co_return absl::UnavailableError("the engine has no sealing keys");
  absl::MutexLock lock(&mu_);
  seal_keys_ = keys;
  seal_keys_read_at_ = clock_.Now();
  co_return keys;
}

Response SignIn::Refuse(const Request& request, const char* code, const absl::Status& status) {
  failed_.Count(request.peer);
  LogWarn("sign-in refused",
          {{"code", code}, {"address", request.peer.to_string()}, {"reason", status.message()}});
  return RedirectTo(absl::StrCat("/ui/login?error=", code));
}

asio::awaitable<absl::StatusOr<Response>> SignIn::BeginLogin(const Request& request) {
  if (provider_.options().issuer.empty()) {
    co_return WithDetail(absl::NotFoundError("this service has no identity provider"),
                         "no_provider");
  }
  if (!failed_.Admit(request.peer).ok()) co_return RedirectTo("/ui/login?error=busy");
  const absl::StatusOr<std::string> base = PublicUrl(request, public_url_);
  if (!base.ok()) co_return base.status();
  const absl::StatusOr<std::vector<SealKey>> keys = co_await ReadSealKeys(kSealKeysLifetime);
  if (!keys.ok()) co_return RedirectTo("/ui/login?error=busy");
  const LoginState login = MakeLoginState(SafeNext(Parameter(request, "next")), clock_.Now());
  std::function<absl::StatusOr<std::string>()> ask = [this, login,
                                                      back = absl::StrCat(*base, kCallbackPath)] {
    return provider_.AuthorizationUrl(login, back);
  };
  const absl::StatusOr<std::string> url = co_await OnThread<std::string>(std::move(ask));
  if (!url.ok()) {
    LogWarn("the identity provider cannot be used", {{"reason", url.status().message()}});
    const bool is_busy = absl::IsResourceExhausted(url.status());
    co_return RedirectTo(absl::StrCat("/ui/login?error=", is_busy ? "busy" : "provider"));
  }
  Response response = RedirectTo(*url);
  response.status = kFound;
  response.headers.push_back(
      cookies_.SetLogin(request, SealLogin(login, keys->front()), kLoginLifetime));
  co_return response;
}

asio::awaitable<absl::StatusOr<LoginState>> SignIn::TakeLogin(const Request& request) {
  const std::optional<std::string> sealed = cookies_.FindLogin(request);
  if (!sealed || sealed->empty()) {
    co_return absl::InvalidArgumentError("the browser has not begun to sign in here");
  }
  absl::StatusOr<std::vector<SealKey>> keys = co_await ReadSealKeys(kSealKeysLifetime);
  if (!keys.ok()) co_return keys.status();
  absl::StatusOr<LoginState> login = OpenLogin(*sealed, *keys, clock_.Now());
  if (absl::IsInvalidArgument(login.status())) {
    keys = co_await ReadSealKeys(kSealKeysPause);
    if (!keys.ok()) co_return keys.status();
    login = OpenLogin(*sealed, *keys, clock_.Now());
  }
  if (!login.ok()) co_return login.status();
  if (!EqualInConstantTime(Parameter(request, "state"), login->state)) {
    co_return absl::InvalidArgumentError("the state is that of another sign-in");
  }
  co_return login;
}

asio::awaitable<Response> SignIn::EndLogin(const Request& request) {
  Response response = RedirectTo("/ui/login?error=busy");
  if (failed_.Admit(request.peer).ok()) {
    const absl::StatusOr<LoginState> login = co_await TakeLogin(request);
    if (login.ok()) {
      response = co_await FinishLogin(request, *login);
    } else if (absl::IsDeadlineExceeded(login.status())) {
      response = RedirectTo("/ui/login?error=expired");
    } else if (absl::IsInvalidArgument(login.status())) {
      response = Refuse(request, "state", login.status());
    }
  }
  // The state works once, whatever came of it.
  response.headers.push_back(cookies_.ClearLogin(request));
  co_return response;
}

asio::awaitable<Response> SignIn::FinishLogin(const Request& request, const LoginState& login) {
  const std::string error = Parameter(request, "error");
  if (error == "access_denied") co_return RedirectTo("/ui/login?error=denied");
  const std::string code = Parameter(request, "code");
  if (!error.empty() || code.empty()) {
    co_return Refuse(request, "provider", absl::InvalidArgumentError("the callback has no code"));
  }
  const absl::StatusOr<std::string> base = PublicUrl(request, public_url_);
  if (!base.ok()) co_return Refuse(request, "state", base.status());
  std::function<absl::StatusOr<Json>()> redeem = [this, login, code,
                                                  issuer = Parameter(request, "iss"),
                                                  back = absl::StrCat(*base, kCallbackPath)] {
    return provider_.Redeem(code, issuer, login, back);
  };
  const absl::StatusOr<Json> claims = co_await OnThread<Json>(std::move(redeem));
  if (absl::IsResourceExhausted(claims.status())) co_return RedirectTo("/ui/login?error=busy");
  if (!claims.ok()) {
    const bool is_away = absl::IsUnavailable(claims.status());
    co_return Refuse(request, is_away ? "provider" : "token", claims.status());
  }
  co_return co_await BeginForClaims(request, login, *claims);
}

asio::awaitable<Response> SignIn::BeginForClaims(const Request& request, const LoginState& login,
                                                 const Json& claims) {
  const v1::BeginUserSessionRequest question =
      QuestionOf(request, provider_.options().issuer, claims);
  const absl::StatusOr<v1::BeginSessionResponse> begun =
      co_await engine_.Call(&SignInStub::BeginUserSession, question, std::string());
  if (begun.ok()) {
    Response response = RedirectTo(login.next);
    GiveSession(request, *begun, response);
    co_return response;
  }
  const std::string code = ErrorCode(begun.status());
  if (code == "user_disabled") co_return Refuse(request, "disabled", begun.status());
  if (code == "unmapped") {
    Response response = Refuse(request, "unmapped", begun.status());
    response.headers[0].value += "&subject=" + EncodeQueryPart(question.subject());
    co_return response;
  }
  if (absl::IsInvalidArgument(begun.status())) co_return Refuse(request, "token", begun.status());
  co_return RedirectTo("/ui/login?error=busy");
}

std::string SignIn::SignOutUrl(const Request& request, const std::string& issuer) {
  const absl::StatusOr<std::string> base = PublicUrl(request, public_url_);
  if (issuer.empty() || issuer != provider_.options().issuer || !base.ok()) return "";
  return provider_.SignOutUrl(absl::StrCat(*base, "/ui/login"));
}

}  // namespace lathe::gateway
