#include "services/api-gateway/auth/oidc/provider.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "libs/common/errors.h"
#include "libs/common/status_macros.h"
#include "libs/common/strings/string_view.h"
#include "services/api-gateway/auth/oidc/id_token.h"

namespace lathe::gateway {
namespace {

constexpr absl::Duration kProviderTimeout = absl::Seconds(5);
constexpr int kOk = 200;
constexpr std::string_view kHttps = "https://";
constexpr std::string_view kHttp = "http://";
constexpr size_t kMaxIssuerBytes = 512;

// Returns host and port of an address; empty: it is none of http or https.
std::string AuthorityOf(const std::string& url) {
  const std::string_view scheme = url.starts_with(kHttps) ? kHttps : kHttp;
  if (!url.starts_with(scheme)) return "";
  const std::string rest = url.substr(scheme.size());
  return rest.substr(0, rest.find_first_of("/?#"));
}

bool IsLoopback(const std::string& url) {
  std::string host = AuthorityOf(url);
  if (host.starts_with("[")) return host.starts_with("[::1]");
  host = host.substr(0, host.find(':'));
  return host == "localhost" || host == "127.0.0.1";
}

// Passwords for a provider and codes for sign-ins go to these addresses.
absl::Status CheckAddress(const std::string& url, const std::string& issuer) {
  const std::string authority = AuthorityOf(url);
  const bool is_clean =
      !authority.empty() && authority.find('@') == std::string::npos &&
      std::all_of(url.begin(), url.end(), [](char c) { return c > 0x20 && c < 0x7f; });
  const bool is_secure = url.starts_with(kHttps) || (IsLoopback(url) && IsLoopback(issuer));
  if (is_clean && is_secure) return absl::OkStatus();
  return absl::UnavailableError("the provider names an address that is not https");
}

std::string Form(const std::vector<std::pair<std::string, std::string>>& fields) {
  return absl::StrJoin(fields, "&", [](std::string* out, const auto& field) {
    absl::StrAppend(out, field.first, "=", EncodeQueryPart(field.second));
  });
}

std::string WithQuery(const std::string& url, const std::string& query) {
  return absl::StrCat(url, url.find('?') == std::string::npos ? "?" : "&", query);
}

absl::Status BadOption(const char* name, const std::string& problem) {
  return WithDetail(absl::InvalidArgumentError(absl::StrCat("auth.", name, " ", problem)),
                    "configuration", name);
}

}  // namespace

absl::Status CheckOidcOptions(const OidcOptions& options) {
  if (options.issuer.empty()) return absl::OkStatus();
  if (options.issuer.size() > kMaxIssuerBytes) {
    return BadOption("oidc_issuer", absl::StrCat("has ", options.issuer.size(), " bytes, limit is ",
                                                 kMaxIssuerBytes));
  }
  if (!CheckAddress(options.issuer, options.issuer).ok() ||
      options.issuer.find_first_of("?#") != std::string::npos) {
    return BadOption("oidc_issuer",
                     absl::StrCat("is '", options.issuer,
                                  "', expected https://HOST/PATH, or http:// on this machine"));
  }
  if (options.client_id.empty()) return BadOption("oidc_client_id", "is missing");
  if (options.algorithms.empty()) return BadOption("oidc_algorithms", "is empty");
  for (const std::string& alg : options.algorithms) {
    if (std::count(std::begin(kSigningAlgorithms), std::end(kSigningAlgorithms), alg) > 0) continue;
    return BadOption("oidc_algorithms",
                     absl::StrCat("has '", alg, "', allowed are RS256, PS256 and ES256"));
  }
  if (!absl::StrContains(absl::StrCat(" ", options.scopes, " "), " openid ")) {
    return BadOption("oidc_scopes",
                     absl::StrCat("is '", options.scopes, "' and must have the word openid"));
  }
  return absl::OkStatus();
}

std::string ProviderName(const OidcOptions& options) {
  return options.name.empty() ? AuthorityOf(options.issuer) : options.name;
}

absl::StatusOr<Json> OidcProvider::Fetch(HttpCallRequest request) {
  request.timeout = kProviderTimeout;
  request.refuses_local = !IsLoopback(options_.issuer);
  const absl::StatusOr<HttpAnswer> answer = http_(request);
  if (!answer.ok()) return absl::UnavailableError(answer.status().message());
  if (answer->status != kOk) {
    return absl::UnavailableError(
        absl::StrCat(UrlToShow(request.url), " answered ", answer->status));
  }
  absl::StatusOr<Json> json = ParseJson(answer->body, UrlToShow(request.url));
  if (!json.ok() || !json->is_object()) {
    return absl::UnavailableError(absl::StrCat(UrlToShow(request.url), " answered no JSON object"));
  }
  return json;
}

absl::StatusOr<std::shared_ptr<const OidcProvider::Metadata>> OidcProvider::ReadMetadata() {
  const absl::Time now = clock_.Now();
  {
    absl::MutexLock lock(&mu_);
    if (metadata_ && now - metadata_->read_at < kMetadataLifetime) return metadata_;
  }
  std::string base = options_.issuer;
  while (base.ends_with('/')) base.pop_back();
  ASSIGN_OR_RETURN(const Json json, Fetch({.url = base + "/.well-known/openid-configuration"}));
  if (JsonString(json, "issuer").value_or("") != options_.issuer) {
    return absl::UnavailableError("the provider names another issuer than auth.oidc_issuer");
  }
  auto fresh = std::make_shared<Metadata>();
  fresh->read_at = now;
  fresh->authorization_endpoint = JsonString(json, "authorization_endpoint").value_or("");
  fresh->token_endpoint = JsonString(json, "token_endpoint").value_or("");
  fresh->jwks_uri = JsonString(json, "jwks_uri").value_or("");
  fresh->userinfo_endpoint = JsonString(json, "userinfo_endpoint").value_or("");
  fresh->end_session_endpoint = JsonString(json, "end_session_endpoint").value_or("");
  fresh->sends_issuer =
      JsonBool(json, "authorization_response_iss_parameter_supported").value_or(false);
  for (const std::string& needed :
       {fresh->authorization_endpoint, fresh->token_endpoint, fresh->jwks_uri}) {
    RETURN_IF_ERROR(CheckAddress(needed, options_.issuer));
  }
  for (const std::string& optional : {fresh->userinfo_endpoint, fresh->end_session_endpoint}) {
    if (!optional.empty()) RETURN_IF_ERROR(CheckAddress(optional, options_.issuer));
  }
  absl::MutexLock lock(&mu_);
  metadata_ = std::move(fresh);
  return metadata_;
}

absl::StatusOr<std::shared_ptr<const JwkSet>> OidcProvider::ReadKeys(const Metadata& metadata) {
  const absl::Time now = clock_.Now();
  {
    absl::MutexLock lock(&mu_);
    if (now - keys_read_at_ < kKeysPause) {
      if (keys_) return keys_;
      return absl::UnavailableError("the provider's keys could not be read a moment ago");
    }
    // Also one that fails counts.
    keys_read_at_ = now;
  }
  ASSIGN_OR_RETURN(const Json json, Fetch({.url = metadata.jwks_uri}));
  absl::StatusOr<JwkSet> set = JwkSet::Parse(ToJsonText(json));
  if (!set.ok()) return absl::UnavailableError(set.status().message());
  auto fresh = std::make_shared<const JwkSet>(*std::move(set));
  absl::MutexLock lock(&mu_);
  keys_ = std::move(fresh);
  return keys_;
}

absl::StatusOr<std::string> OidcProvider::AuthorizationUrl(const LoginState& login,
                                                           const std::string& redirect_uri) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const Metadata> metadata, ReadMetadata());
  return WithQuery(metadata->authorization_endpoint,
                   Form({{"response_type", "code"},
                         {"client_id", options_.client_id},
                         {"redirect_uri", redirect_uri},
                         {"scope", options_.scopes},
                         {"state", login.state},
                         {"nonce", login.nonce},
                         {"code_challenge", CodeChallenge(login.verifier)},
                         {"code_challenge_method", "S256"}}));
}

absl::StatusOr<OidcProvider::Tokens> OidcProvider::ExchangeCode(const Metadata& metadata,
                                                                const std::string& code,
                                                                const LoginState& login,
                                                                const std::string& redirect_uri) {
  HttpCallRequest request{
      .url = metadata.token_endpoint,
      .headers = {"Content-Type: application/x-www-form-urlencoded", "Accept: application/json"}};
  std::vector<std::pair<std::string, std::string>> fields = {{"grant_type", "authorization_code"},
                                                             {"code", code},
                                                             {"redirect_uri", redirect_uri},
                                                             {"code_verifier", login.verifier}};
  if (options_.client_secret.empty()) {
    fields.emplace_back("client_id", options_.client_id);
  } else {
    // RFC 6749, section 2.3.1: both are encoded before they are joined.
    const std::string joined = absl::StrCat(EncodeQueryPart(options_.client_id), ":",
                                            EncodeQueryPart(options_.client_secret));
    request.headers.push_back(absl::StrCat("Authorization: Basic ", absl::Base64Escape(joined)));
  }
  request.body = Form(fields);
  ASSIGN_OR_RETURN(const Json json, Fetch(std::move(request)));
  Tokens tokens{.id_token = JsonString(json, "id_token").value_or(""),
                .access_token = JsonString(json, "access_token").value_or("")};
  if (tokens.id_token.empty()) return absl::UnavailableError("the provider sent no ID token");
  return tokens;
}

absl::StatusOr<Json> OidcProvider::CheckToken(const Metadata& metadata, const Tokens& tokens,
                                              const LoginState& login) {
  const IdTokenChecks checks{.issuer = options_.issuer,
                             .client_id = options_.client_id,
                             .nonce = login.nonce,
                             .access_token = tokens.access_token,
                             .algorithms = options_.algorithms,
                             .now = clock_.Now()};
  std::shared_ptr<const JwkSet> known;
  {
    absl::MutexLock lock(&mu_);
    known = keys_;
  }
  if (known) {
    absl::StatusOr<Json> claims = CheckIdToken(tokens.id_token, *known, checks);
    if (!absl::IsNotFound(claims.status())) return claims;
  }
  // The provider may have changed its keys.
  ASSIGN_OR_RETURN(const std::shared_ptr<const JwkSet> fresh, ReadKeys(metadata));
  absl::StatusOr<Json> claims = CheckIdToken(tokens.id_token, *fresh, checks);
  if (absl::IsNotFound(claims.status())) {
    return absl::InvalidArgumentError(claims.status().message());
  }
  return claims;
}

absl::Status OidcProvider::AddUserinfo(const Metadata& metadata, const Tokens& tokens,
                                       Json& claims) {
  const bool has_all = std::all_of(options_.claims.begin(), options_.claims.end(),
                                   [&](const std::string& name) { return JsonHas(claims, name); });
  const bool is_printable = std::all_of(tokens.access_token.begin(), tokens.access_token.end(),
                                        [](char c) { return c > 0x20 && c < 0x7f; });
  if (has_all || metadata.userinfo_endpoint.empty() || tokens.access_token.empty() ||
      !is_printable) {
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(
      const Json userinfo,
      Fetch({.url = metadata.userinfo_endpoint,
             .headers = {absl::StrCat("Authorization: Bearer ", tokens.access_token)}}));
  if (JsonString(userinfo, "sub").value_or("") != JsonString(claims, "sub").value_or("")) {
    return absl::InvalidArgumentError("userinfo describes another user than the ID token");
  }
  // An address and whether it is verified belong together.
  const bool has_email = JsonHas(claims, "email");
  for (const auto& [name, value] : userinfo.items()) {
    if (has_email && name == "email_verified") continue;
    if (!claims.contains(name)) claims[name] = value;
  }
  return absl::OkStatus();
}

absl::StatusOr<Json> OidcProvider::Redeem(const std::string& code, const std::string& issuer,
                                          const LoginState& login,
                                          const std::string& redirect_uri) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const Metadata> metadata, ReadMetadata());
  const bool is_other = !issuer.empty() && issuer != options_.issuer;
  if (is_other || (issuer.empty() && metadata->sends_issuer)) {
    return absl::InvalidArgumentError("the callback comes from another provider");
  }
  ASSIGN_OR_RETURN(const Tokens tokens, ExchangeCode(*metadata, code, login, redirect_uri));
  ASSIGN_OR_RETURN(Json claims, CheckToken(*metadata, tokens, login));
  RETURN_IF_ERROR(AddUserinfo(*metadata, tokens, claims));
  return claims;
}

std::string OidcProvider::SignOutUrl(const std::string& back_to) {
  absl::MutexLock lock(&mu_);
  if (!metadata_ || metadata_->end_session_endpoint.empty()) return "";
  return WithQuery(metadata_->end_session_endpoint, Form({{"client_id", options_.client_id},
                                                          {"post_logout_redirect_uri", back_to}}));
}

}  // namespace lathe::gateway
